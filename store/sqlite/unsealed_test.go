package sqlite_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
)

// Who can write to the database cannot plant contents, nor make a row of which the server writes the rest in the
// clear.
func TestUnsealedRowsAreRefused(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "berth.db"), t.Context()
	db := open(t, path)
	key := keyOf("conversation", "", "conv_1")
	if err := db.CreateObjects(ctx, theProject, &store.Object{ObjectKey: key, Body: []byte(`{"own":1}`)}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	writeSQL(t, path, `UPDATE objects SET body = '{"planted":1}', seal = 0`)
	db = open(t, path)
	defer db.Close()
	if o, err := db.GetObject(ctx, theProject, key); !errors.Is(err, sealed.ErrUnsealed) {
		t.Errorf("an unsealed row: got %+v, %v", o, err)
	}
	_, err := db.UpdateObject(ctx, theProject, key, func(o *store.Object) error {
		o.Body = []byte(`{"secret":1}`)
		return nil
	})
	if !errors.Is(err, sealed.ErrUnsealed) {
		t.Errorf("an update of an unsealed row: got %v", err)
	}
}

// A database of a former version refuses unsealed rows once it has none of its own.
func TestEarlierDatabaseIsSealedAtLast(t *testing.T) {
	path, ctx := unpackBefore(t), t.Context()
	mark := func() string {
		t.Helper()
		db := openBefore(t, path)
		defer db.Close()
		text, err := db.QueryText("SELECT hex(mark) FROM ring")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := mark()
	db := openBefore(t, path)
	if o, err := db.GetObject(ctx, theProject, keyOf("conversation", "", "conv_clear")); err != nil {
		t.Errorf("an unsealed row: got %+v, %v", o, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if again := mark(); again != first {
		t.Errorf("with unsealed rows: the mark is %s, want %s", again, first)
	}
	writeSQL(t, path, `DELETE FROM objects WHERE seal = 0; DELETE FROM containers WHERE seal = 0;
		DELETE FROM files WHERE seal = 0; UPDATE responses SET deleted = 1 WHERE seal = 0`)
	if last := mark(); last == first {
		t.Error("without unsealed rows the mark stays")
	}
	writeSQL(t, path, `UPDATE objects SET body = '{"planted":1}', seal = 0 WHERE id = 'conv_1'`)
	db = openBefore(t, path)
	defer db.Close()
	if o, err := db.GetObject(ctx, theProject, keyOf("conversation", "", "conv_1")); !errors.Is(err, sealed.ErrUnsealed) {
		t.Errorf("a planted row: got %+v, %v", o, err)
	}
}

// writeSQL changes a database that is closed, as something else than Berth may.
func writeSQL(t *testing.T, path, query string) {
	t.Helper()
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

package postgres_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
	"github.com/berth-run/berth/store/storetest"
)

func TestRotateKey(t *testing.T) {
	storetest.Rotations(t, 2, []string{"mark replaced", "keys copied", "committed"},
		func(t *testing.T) string { return pgtest.URL(t) + " " + filepath.Join(t.TempDir(), "berth.keys") },
		func(ctx context.Context, where string, key [32]byte) (storetest.Rotator, error) {
			url, keys, _ := strings.Cut(where, " ")
			return postgres.Open(ctx, url, &postgres.Options{Keys: keys, Key: key, Claim: true})
		})
}

// After a rotation, the files of the database have no key that the former server's key opens, and another process that
// still has the former key writes nothing that the new one cannot read.
func TestRotateForgets(t *testing.T) {
	server := pgtest.Start(t)
	url := server.NewDatabase(t)
	db, other := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
	if err := db.CreateObjects(t.Context(), ringProject, note("note_1")); err != nil {
		t.Fatal(err)
	}
	box := execute(t, url,
		"SELECT box FROM row_keys WHERE number = (SELECT seal FROM objects WHERE id = 'note_1')").([]byte)
	if !bytes.Contains(files(t, server), box) {
		t.Fatal("the files lack a key; the test would prove nothing")
	}
	if err := db.RotateKey(t.Context(), [32]byte{5}, nil); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(files(t, server), box) {
		t.Error("the files still have a key that was sealed with the former key")
	}
	if err := other.CreateObjects(t.Context(), ringProject, note("note_2")); err == nil || !strings.Contains(err.Error(),
		"after a rotation the new one") {
		t.Errorf("a process with the former key writes: %v", err)
	}
	if _, err := db.GetObject(t.Context(), ringProject, note("note_1").ObjectKey); err != nil {
		t.Error(err)
	}
}

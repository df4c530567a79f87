package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
	"github.com/berth-run/berth/store/sealed"
)

const ringProject berth.ProjectID = "proj_ring"

func note(id string) *store.Object {
	return &store.Object{ObjectKey: store.ObjectKey{Kind: "note", ID: id}, CreatedAt: 1, Body: []byte(`"` + id + `"`)}
}

// Servers with state directories of their own and the same key read each other's rows, and a
// deletion on one is one on all.
func TestServersShareKeys(t *testing.T) {
	url := pgtest.URL(t)
	a, b := open(t, url, postgres.Options{Key: [32]byte{7}}), open(t, url, postgres.Options{Key: [32]byte{7}})
	for i := range 40 { // more than one creation of keys
		id := fmt.Sprint("note_", i)
		if err := a.CreateObjects(t.Context(), ringProject, note(id)); err != nil {
			t.Fatal(err)
		}
		if o, err := b.GetObject(t.Context(), ringProject, note(id).ObjectKey); err != nil ||
			string(o.Body) != `"`+id+`"` {
			t.Fatalf("the other server reads %v, %v", o, err)
		}
	}
	if err := a.CreateObjects(t.Context(), ringProject, note("note_b")); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteObject(t.Context(), ringProject, note("note_b").ObjectKey); err != nil {
		t.Fatal(err)
	}
	if _, err := a.GetObject(t.Context(), ringProject, note("note_b").ObjectKey); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a row that another server deleted: got %v", err)
	}
	if _, err := postgres.Open(t.Context(), url, &postgres.Options{Key: [32]byte{8}, Keys: filepath.Join(t.TempDir(),
		"keys")}); err == nil ||
		!strings.Contains(err.Error(), "all servers of a database need the same seal.key") {
		t.Errorf("a server with another key: got %v", err)
	}
	before := execute(t, url, "SELECT count(*) FROM row_keys").(int64)
	c, err := postgres.Open(t.Context(), url, &postgres.Options{Key: [32]byte{7}, Keys: filepath.Join(t.TempDir(),
		"keys")})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.CreateObjects(t.Context(), ringProject, note("note_c")), c.Close()); err != nil {
		t.Fatal(err)
	}
	if n := execute(t, url, "SELECT count(*) FROM row_keys").(int64) - before; n != 1 {
		t.Errorf("a process that created one row left %d keys", n)
	}
}

// files returns the content of the files of a server, without its write-ahead log.
func files(t *testing.T, server *pgtest.Server) (all []byte) {
	t.Helper()
	execute(t, server.URL(), "CHECKPOINT")
	err := filepath.WalkDir(filepath.Join(server.Data(), "base"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has been removed
		}
		all = append(all, content...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// After Scrub, the files of the database have no erased key, not even an encrypted one.
func TestScrub(t *testing.T) {
	server := pgtest.Start(t)
	url := server.NewDatabase(t)
	db := open(t, url, postgres.Options{})
	var boxes [][]byte
	for i := range 60 {
		id := fmt.Sprint("note_", i)
		if err := db.CreateObjects(t.Context(), ringProject, note(id)); err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes,
			execute(t, url, "SELECT box FROM row_keys WHERE number = (SELECT seal FROM objects WHERE id = $1)",
				id).([]byte))
	}
	if !bytes.Contains(files(t, server), boxes[0]) {
		t.Fatal("the files lack a key; the test would prove nothing")
	}
	for i := range 50 {
		if err := db.DeleteObject(t.Context(), ringProject, note(fmt.Sprint("note_", i)).ObjectKey); err != nil {
			t.Fatal(err)
		}
	}
	// PostgreSQL counts deletions with a delay
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err := db.Scrub(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, left := files(t, server), 0
		for _, box := range boxes[:50] {
			left += bytes.Count(all, box)
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the files have %d erased keys", left)
		}
	}
	for i := 50; i < 60; i++ {
		if _, err := db.GetObject(t.Context(), ringProject, note(fmt.Sprint("note_", i)).ObjectKey); err != nil {
			t.Error(err)
		}
	}
}

// A database of a former version has its keys in a file of its server, which moves them.
func TestKeysMove(t *testing.T) {
	url, dir, root := pgtest.URL(t), t.TempDir(), [32]byte{7}
	path := filepath.Join(dir, "berth.keys")
	db, err := postgres.Open(t.Context(), url, &postgres.Options{Keys: path, Key: root})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := db.CreateObjects(t.Context(), ringProject, note(fmt.Sprint("note_", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content := intoFile(t, url, path, root)

	other := filepath.Join(t.TempDir(), "berth.keys")
	if _, err := postgres.Open(t.Context(), url, &postgres.Options{Keys: other, Key: root}); err == nil ||
		!strings.Contains(err.Error(), "start that server first") {
		t.Errorf("a server without the file: got %v", err)
	}
	if _, err := postgres.Open(t.Context(), url, &postgres.Options{Keys: path, Key: [32]byte{8}}); err == nil ||
		!strings.Contains(err.Error(), "other keys") {
		t.Errorf("another key of the server: got %v", err)
	}
	db = open(t, url, postgres.Options{Keys: path, Key: root, Claim: true})
	for i := range 20 {
		if o, err := db.GetObject(t.Context(), ringProject, note(fmt.Sprint("note_", i)).ObjectKey); err != nil ||
			len(o.Body) == 0 {
			t.Fatalf("note %d after the move: %v", i, err)
		}
	}
	if err := db.CreateObjects(t.Context(), ringProject, note("note_new")); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(path)
	if err != nil || len(now) != 4096 || !bytes.HasPrefix(content, now) {
		t.Errorf("the file has %d bytes, %v; want its header", len(now), err)
	}
	second := open(t, url, postgres.Options{Keys: other, Key: root})
	if _, err := second.GetObject(t.Context(), ringProject, note("note_1").ObjectKey); err != nil {
		t.Errorf("another server after the move: %v", err)
	}
	// A server that died before it erased the file does so at its next start.
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, url, postgres.Options{Keys: path, Key: root})
	if now, err := os.ReadFile(path); err != nil || len(now) != 4096 {
		t.Errorf("after the second start the file has %d bytes, %v", len(now), err)
	}
}

// intoFile gives a database the form of a former version: its keys are in a file. It
// returns the file.
func intoFile(t *testing.T, url, path string, root [32]byte) []byte {
	t.Helper()
	id := [16]byte(execute(t, url, "SELECT id FROM ring").([]byte))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.OpenAs(path, id)
	if err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Close(); err != nil {
		t.Fatal(err)
	}
	w := sealed.NewWrapper(root)
	last := execute(t, url, "SELECT max(number) FROM row_keys").(int64)
	content := append(header, make([]byte, 32*last)...)
	for n := int64(1); n <= last; n++ {
		box, ok := execute(t, url, "SELECT box FROM row_keys WHERE number = $1", n).([]byte)
		if !ok {
			continue // erased
		}
		key, err := w.Unwrap(id, n, box)
		if err != nil {
			t.Fatal(err)
		}
		copy(content[4096+32*(n-1):], key[:])
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "TRUNCATE row_keys")
	execute(t, url, "ALTER SEQUENCE row_key_numbers RESTART")
	execute(t, url, "UPDATE ring SET id = NULL")
	return content
}

package sqlite

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// The migration counts existing content like new content.
func TestMigrationCountsExisting(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	req := &berth.ResponseRequest{Model: "m"}
	r := &store.Response{Project: "a", Request: req, Body: berth.NewResponse("resp_1", 1, req)}
	c := &berth.Container{ID: "cntr_1", Name: "x"}
	for _, err := range []error{
		db.CreateResponse(t.Context(), r, []store.Event{{Data: json.RawMessage(`{}`)},
			{SequenceNumber: 1, Data: json.RawMessage(`{}`)}}, store.Lease{}),
		db.CreateObjects(t.Context(), "b", &store.Object{ObjectKey: store.ObjectKey{Kind: "k", ID: "x"},
			Body: json.RawMessage(`{}`)}),
		db.CreateContainer(t.Context(), &store.Container{Project: "a", Body: c}),
		db.PutContainerFile(t.Context(), "a", &berth.ContainerFile{ID: "cfile_1", ContainerID: "cntr_1",
			Path: "/mnt/data/x"}),
		db.CreateFile(t.Context(), "b", &berth.File{ID: "file-1"}, []byte("key")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("migrations/00009_stored.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, count, _ := strings.Cut(string(text), "INSERT INTO stored\n")
	count, _, _ = strings.Cut(count, ";")
	rows, err := db.core.read.QueryContext(t.Context(), count)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var project berth.ProjectID
		var bytes int64
		if err := rows.Scan(&project, &bytes); err != nil {
			t.Fatal(err)
		}
		if got, err := db.StoredBytes(t.Context(), project); err != nil || got != bytes || got == 0 {
			t.Errorf("%s: got %d, %v; the migration counts %d", project, got, err, bytes)
		}
		n++
	}
	if n != 2 || rows.Err() != nil {
		t.Errorf("got %d projects, %v", n, rows.Err())
	}
}

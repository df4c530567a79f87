package sqlite_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// before unpacks a database and its keys as written by version 66edd30. It has
// unsealed rows of earlier versions, and a response whose deletion a crash interrupted
// before its key was erased.
func before(t *testing.T) *sqlite.DB {
	t.Helper()
	db := openBefore(t, unpackBefore(t))
	t.Cleanup(func() {
		check(t, db)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// unpackBefore returns the path of the database.
func unpackBefore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"before.db", "before.keys"} {
		packed, err := os.ReadFile(filepath.Join("testdata", name+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "before.db")
}

func openBefore(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, &sqlite.Options{Key: [32]byte{7}})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

const theProject berth.ProjectID = "proj_a"

func keyOf(kind store.Kind, parent, id string) store.ObjectKey {
	return store.ObjectKey{Kind: kind, Parent: parent, ID: id}
}

func TestEarlierDatabaseIsRead(t *testing.T) {
	db, ctx := before(t), t.Context()
	r, err := db.GetResponse(ctx, theProject, "resp_1")
	if err != nil || r.Body.Status != berth.StatusCompleted || len(r.Body.Output) != 1 ||
		r.Body.Output[0].ID() != "msg_out_resp_1" ||
		*r.Request.Instructions != "resp_1" || r.Input[0].ID() != "msg_in_resp_1" || r.Container != "cntr_1" ||
		r.Key != "key_1" {
		t.Errorf("response: got %+v, %v", r, err)
	}
	if links, err := db.Chain(ctx, theProject, "resp_2"); err != nil || len(links) != 2 || links[0].ID != "resp_1" ||
		len(links[0].Output) != 1 {
		t.Errorf("chain: got %+v, %v", links, err)
	}
	if pieces, err := db.ReadResponse(ctx, theProject, "resp_1"); err != nil || !bytes.Contains(bytes.Join(pieces, nil),
		[]byte(`"content":"out resp_1"`)) {
		t.Errorf("JSON: got %s, %v", pieces, err)
	}
	if events, err := db.Events(ctx, theProject, "resp_2", -1, 10); err != nil || len(events) != 2 ||
		string(events[1].Data) != `{"sequence_number":1}` {
		t.Errorf("events: got %v, %v", events, err)
	}
	if items, err := db.Items(ctx, theProject, []string{"msg_in_resp_2", "msg_out_resp_1", "msg_conv"}); err != nil ||
		len(items) != 3 {
		t.Errorf("items: got %v, %v", items, err)
	}
	if _, key, err := db.GetFile(ctx, theProject, "file-1"); err != nil || string(key) != "key of file-1" {
		t.Errorf("key of a file: got %q, %v", key, err)
	}
	for name, id := range map[string]berth.ContainerID{"box": "cntr_1", "clear": "cntr_clear"} {
		if all, _, err := db.ListContainers(ctx, theProject, name, store.Page{Limit: 10}); err != nil ||
			len(all) != 1 || all[0].Body.ID != id || all[0].Body.Name != name {
			t.Errorf("containers by name: got %v, %v", all, err)
		}
	}
	for path, id := range map[string]berth.ContainerID{"/mnt/data/a": "cntr_1", "/clear": "cntr_clear"} {
		f := &berth.ContainerFile{ID: "cfile_new", ContainerID: id, Path: path, Source: "assistant"}
		if err := db.PutContainerFile(ctx, theProject, f); err != nil || f.ID == "cfile_new" {
			t.Errorf("a file that exists: got %+v, %v", f, err)
		}
		if all, err := db.ContainerFiles(ctx, theProject, id); err != nil || len(all) != 1 || all[0].Path != path {
			t.Errorf("files: got %v, %v", all, err)
		}
	}
	for _, key := range []store.ObjectKey{keyOf("conversation", "", "conv_1"), keyOf("conversation", "", "conv_clear"),
		keyOf("conversation_item", "msg_conv", "msg_deep"), keyOf("container.log", "cntr_1", "log_1")} {
		if o, err := db.GetObject(ctx, theProject, key); err != nil || len(o.Body) < 5 {
			t.Errorf("%s: got %v, %v", key.ID, o, err)
		}
	}
	used, err := db.Usage(ctx, store.UsageQuery{Project: theProject, Kind: store.UsageResponse, From: time.Unix(0, 0),
		To: time.Now().Add(time.Hour), Width: time.Minute})
	if err != nil || len(used) != 1 || used[0].InputTokens != 3 || used[0].OutputTokens != 5 {
		t.Errorf("usage: got %+v, %v", used, err)
	}
}

func TestEarlierDatabaseIsErased(t *testing.T) {
	db, ctx := before(t), t.Context()
	has := func(number string) bool {
		t.Helper()
		there, err := db.HasKey(number)
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	const interrupted = "9"
	if left, err := db.QueryText("SELECT count(*) FROM doomed"); left != "0" || err != nil || has(interrupted) {
		t.Errorf("%s keys are not erased yet, %v; the key of the interrupted deletion exists: %t", left, err,
			has(interrupted))
	}
	for _, step := range []struct {
		query string
		do    func() error
	}{
		{"SELECT seal FROM responses WHERE id = 'resp_2'", func() error {
			return db.DeleteResponse(ctx, theProject, "resp_2")
		}},
		{"SELECT seal FROM files WHERE id = 'file-1'", func() error {
			return db.DeleteFile(ctx, theProject, "file-1")
		}},
		{"SELECT seal FROM objects WHERE id = 'log_1'", func() error {
			return db.DeleteContainer(ctx, theProject, "cntr_1")
		}},
		{"SELECT seal FROM objects WHERE id = 'msg_deep'", func() error {
			return db.DeleteObject(ctx, theProject, keyOf("conversation", "", "conv_1"))
		}},
	} {
		number, err := db.QueryText(step.query)
		if err != nil || !has(number) {
			t.Fatalf("%s: key %s, %v", step.query, number, err)
		}
		if err := step.do(); err != nil || has(number) {
			t.Errorf("%s: after the deletion the key exists: %t, %v", step.query, has(number), err)
		}
	}
	if err := db.DeleteContainer(ctx, theProject, "cntr_clear"); err != nil {
		t.Error(err)
	}
	if err := db.DeleteObject(ctx, theProject, keyOf("conversation", "", "conv_clear")); err != nil {
		t.Error(err)
	}
}

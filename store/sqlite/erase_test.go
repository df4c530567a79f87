package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const canary = "canary-in-a-coal-mine "

// An author writes responses, each filled with copies of one word.
type author struct {
	db     *sqlite.DB
	words  []string // one for each response
	next   []int64
	random *rand.Rand
}

func lease() store.Lease { return store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)} }

func newAuthor(t *testing.T, db *sqlite.DB, seed uint64, words ...string) *author {
	a := &author{db: db, words: words, next: make([]int64, len(words)), random: rand.New(rand.NewPCG(seed, 0))}
	for i := range words {
		r := &store.Response{Project: "p", Request: &berth.ResponseRequest{Model: a.text(i)}, Body: a.body(i),
			Input: []berth.Item{a.item(i)}}
		if err := db.CreateResponse(t.Context(), r, nil, lease()); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (a *author) id(i int) berth.ResponseID { return berth.ResponseID(fmt.Sprintf("resp_%03d", i)) }

// text is usually short and sometimes long.
func (a *author) text(i int) string {
	return strings.Repeat(a.words[i], 1+a.random.IntN(1+a.random.IntN(100)))
}

func (a *author) item(i int) berth.Item {
	return berth.NewItem(berth.Message{Type: "message", Role: "user",
		Content: []berth.Content{{Type: "input_text", Text: a.text(i)}}})
}

func (a *author) body(i int) *berth.Response {
	// The model's name is not content: it remains in the usage.
	body := berth.NewResponse(a.id(i), 1, &berth.ResponseRequest{Model: "m", Instructions: &a.words[i]})
	for range a.random.IntN(5) {
		body.Output = append(body.Output, a.item(i))
	}
	return body
}

// write appends to random responses n times.
func (a *author) write(t *testing.T, n int) {
	t.Helper()
	for range n {
		i := a.random.IntN(len(a.words))
		var body *berth.Response
		if a.random.IntN(4) == 0 {
			body = a.body(i)
		}
		ev := []store.Event{{SequenceNumber: a.next[i], Type: berth.EventOutputTextDelta, Data: []byte(`{"delta":"` +
			a.text(i) + `"}`)}}
		if err := a.db.AppendEvents(t.Context(), "p", a.id(i), "me", ev, body); err != nil {
			t.Fatal(err)
		}
		a.next[i]++
	}
}

// copied copies the files as a crash now would leave them.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{"berth.db", "berth.db-wal", "berth.keys"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// check runs SQLite's integrity check.
func check(t *testing.T, db *sqlite.DB) {
	t.Helper()
	got, err := db.QueryText("PRAGMA integrity_check")
	if err != nil || got != "ok" {
		t.Errorf("integrity: %q, %v", got, err)
	}
}

// Each kind of object is sealed and deleted with its key.
func TestEachKindIsErased(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "berth.db"))
	ctx := t.Context()
	a := newAuthor(t, db, 1, canary)
	a.write(t, 10)
	conversation := &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversation, ID: "conv_1"},
		Body: []byte(`"` + canary + `"`)}
	item := func(parent, id string) *store.Object {
		return &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversationItem, Parent: parent, ID: id},
			Body: []byte(`"` + strings.Repeat(canary, 1000) + `"`)}
	}
	file := &berth.ContainerFile{ID: "cfile_1", ContainerID: "cntr_1", Path: canary}
	for _, create := range []func() error{
		func() error { return db.CreateFile(ctx, "p", &berth.File{ID: "file-1", Filename: canary}, nil) },
		func() error {
			return db.CreateContainer(ctx, &store.Container{Project: "p",
				Body: &berth.Container{ID: "cntr_1", Name: canary}})
		},
		func() error { return db.PutContainerFile(ctx, "p", file) },
		func() error { return db.CreateObjects(ctx, "p", conversation, item("conv_1", "msg_1")) },
		func() error { return db.CreateObjects(ctx, "p", item("msg_1", "msg_2"), item("cntr_1", "log_1")) },
		func() error {
			_, err := db.UpdateObject(ctx, "p", conversation.ObjectKey, func(o *store.Object) error {
				o.Body = []byte(`"` + canary + canary + `"`)
				return nil
			})
			return err
		},
		func() error {
			_, err := db.UpdateContainer(ctx, "p", "cntr_1", func(c *berth.Container) error {
				c.Name += canary
				return nil
			})
			return err
		},
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := db.ContainerFiles(ctx, "p", "cntr_1"); err != nil || len(files) != 1 || files[0].Path != canary {
		t.Errorf("got %v, %v; want the one file", files, err)
	}
	if n := count(t, dir, canary); n > 0 {
		t.Errorf("the canary is on the disk %d times", n)
	}
	const keys = "SELECT group_concat(seal) FROM (SELECT seal FROM responses UNION SELECT seal FROM files UNION SELECT seal FROM containers UNION SELECT seal FROM objects)"
	all, err := db.QueryText(keys)
	if err != nil {
		t.Fatal(err)
	}
	numbers := strings.Split(all, ",")
	if len(numbers) != 7 {
		t.Fatalf("got the keys %s, want 7", all)
	}
	if err := errors.Join(db.DeleteResponse(ctx, "p", a.id(0)), db.DeleteFile(ctx, "p", "file-1"),
		db.DeleteContainer(ctx, "p", "cntr_1"), db.DeleteObject(ctx, "p", conversation.ObjectKey)); err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		if there, err := db.HasKey(n); there || err != nil {
			t.Errorf("key %s exists: %t, %v", n, there, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// The next start completes a deletion that a crash interrupted before its key was
// erased.
func TestEraseAfterCrash(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "berth.db"))
	a := newAuthor(t, db, 1, canary, "innocent ")
	number, err := db.QueryText("SELECT seal FROM responses WHERE id = '" + string(a.id(0)) + "'")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Doom("responses", string(a.id(0))); err != nil {
		t.Fatal(err)
	}
	crashed := copied(t, dir)
	if there, err := db.HasKey(number); !there || err != nil {
		t.Fatalf("the key exists: %t, %v; the test would prove nothing", there, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		db = open(t, filepath.Join(crashed, "berth.db"))
		if there, err := db.HasKey(number); there || err != nil {
			t.Errorf("the key exists: %t, %v", there, err)
		}
		if left, err := db.QueryText("SELECT count(*) FROM doomed"); left != "0" || err != nil {
			t.Errorf("%s keys are not erased yet, %v", left, err)
		}
		if _, err := db.GetResponse(t.Context(), "p", a.id(1)); err != nil {
			t.Errorf("another response: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Unsealed rows of an earlier version can be read, found and deleted.
func TestClearRows(t *testing.T) {
	db := openBefore(t, unpackBefore(t))
	defer db.Close()
	ctx := t.Context()
	for _, text := range []string{
		`INSERT INTO containers (id, project, created_at, name, status, body) VALUES ('cntr_x', 'p', 1, 'own', 'running', '{"id":"cntr_x","name":"own"}')`,
		`INSERT INTO container_files (container, path, id, created_at, source, bytes) VALUES ('cntr_x', '/a', 'cfile_x', 1, 'user', 1)`,
		`INSERT INTO objects (project, kind, parent, id, created_at, body) VALUES ('p', 'conversation', '', 'conv_x', 1, '{"a":1}')`,
	} {
		if err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	if all, _, err := db.ListContainers(ctx, "p", "own", store.Page{Limit: 10}); err != nil || len(all) != 1 ||
		all[0].Body.Name != "own" {
		t.Errorf("got %v, %v", all, err)
	}
	f := &berth.ContainerFile{ID: "cfile_2", ContainerID: "cntr_x", Path: "/a"}
	if err := db.PutContainerFile(ctx, "p", f); err != nil || f.ID != "cfile_x" {
		t.Errorf("a known file: got %s, %v", f.ID, err)
	}
	o, err := db.UpdateObject(ctx, "p", store.ObjectKey{Kind: "conversation", ID: "conv_x"},
		func(o *store.Object) error {
			return nil
		})
	if err != nil || string(o.Body) != `{"a":1}` {
		t.Errorf("got %v, %v", o, err)
	}
	if err := errors.Join(db.DeleteObject(ctx, "p", o.ObjectKey), db.DeleteContainer(ctx, "p", "cntr_x")); err != nil {
		t.Error(err)
	}
}

// count counts a text in the files of a directory.
func count(t *testing.T, dir, text string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(content, []byte(text))
	}
	return n
}

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

// An author writes responses whose content is one word, again and again.
type author struct {
	db     *sqlite.DB
	words  []string // by response
	next   []int64
	random *rand.Rand
}

func lease() store.Lease { return store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)} }

func newAuthor(t *testing.T, db *sqlite.DB, seed uint64, words ...string) *author {
	a := &author{db: db, words: words, next: make([]int64, len(words)), random: rand.New(rand.NewPCG(seed, 0))}
	for i := range words {
		r := &store.Response{Project: "p", Request: &berth.ResponseRequest{Model: a.text(i)}, Body: a.body(i), Input: []berth.Item{a.item(i)}}
		if err := db.CreateResponse(t.Context(), r, nil, lease()); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (a *author) id(i int) berth.ResponseID { return berth.ResponseID(fmt.Sprintf("resp_%03d", i)) }

// text is mostly short and sometimes long.
func (a *author) text(i int) string {
	return strings.Repeat(a.words[i], 1+a.random.IntN(1+a.random.IntN(100)))
}

func (a *author) item(i int) berth.Item {
	return berth.NewItem(berth.Message{Type: "message", Role: "user", Content: []berth.Content{{Type: "input_text", Text: a.text(i)}}})
}

func (a *author) body(i int) *berth.Response {
	// The name of the model is not content: it stays, in what was used.
	body := berth.NewResponse(a.id(i), 1, &berth.ResponseRequest{Model: "m", Instructions: &a.words[i]})
	for range a.random.IntN(5) {
		body.Output = append(body.Output, a.item(i))
	}
	return body
}

// write appends to responses at random, n times.
func (a *author) write(t *testing.T, n int) {
	t.Helper()
	for range n {
		i := a.random.IntN(len(a.words))
		var body *berth.Response
		if a.random.IntN(4) == 0 {
			body = a.body(i)
		}
		ev := []store.Event{{SequenceNumber: a.next[i], Type: berth.EventOutputTextDelta, Data: []byte(`{"delta":"` + a.text(i) + `"}`)}}
		if err := a.db.AppendEvents(t.Context(), "p", a.id(i), "me", ev, body); err != nil {
			t.Fatal(err)
		}
		a.next[i]++
	}
}

// What is deleted is in no file of the database any more, wherever SQLite has moved
// it meanwhile.
func TestDeletedIsGone(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			db := open(t, filepath.Join(dir, "berth.db"))
			words := make([]string, 30)
			for i := range words {
				words[i] = "innocent "
			}
			words[17] = canary
			a := newAuthor(t, db, seed, words...)
			a.write(t, 3000)
			if n := count(t, dir, canary); n < 100 {
				t.Fatalf("the canary is on the disk %d times before the deletion; this test sees nothing", n)
			}
			if err := db.DeleteResponse(t.Context(), "p", a.id(17)); err != nil {
				t.Fatal(err)
			}
			if done, err := db.Erase(t.Context()); !done || err != nil {
				t.Fatalf("Erase: %v, %v", done, err)
			}
			if n := count(t, dir, canary); n > 0 {
				t.Errorf("the canary is on the disk %d times", n)
			}
			for i := range words {
				if i == 17 {
					continue
				}
				if _, err := db.GetResponse(t.Context(), "p", a.id(i)); err != nil {
					t.Errorf("another response: %v", err)
				}
				if events, err := db.Events(t.Context(), "p", a.id(i), -1, 1000); err != nil || int64(len(events)) != a.next[i] {
					t.Errorf("another response has %d events, %v; want %d", len(events), err, a.next[i])
				}
			}
			check(t, db)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// check asks SQLite whether the file is sound.
func check(t *testing.T, db *sqlite.DB) {
	t.Helper()
	got, err := db.QueryText("PRAGMA integrity_check")
	if err != nil || got != "ok" {
		t.Errorf("integrity: %q, %v", got, err)
	}
}

// Each kind of object is erased, by Close at the latest.
func TestEachKindIsErased(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "berth.db"))
	ctx := t.Context()
	a := newAuthor(t, db, 1, canary)
	a.write(t, 10)
	keyHash := [32]byte([]byte(canary + canary))
	file := func(id berth.CFileID) *berth.ContainerFile {
		return &berth.ContainerFile{ID: id, ContainerID: "cntr_1", Path: canary + string(id)}
	}
	conversation := &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversation, ID: "conv_1"}, Body: []byte(`"` + canary + `"`)}
	item := func(id string) *store.Object {
		return &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversationItem, Parent: "conv_1", ID: id}, Body: []byte(`"` + strings.Repeat(canary, 1000) + `"`)}
	}
	for _, create := range []func() error{
		func() error { return db.CreateFile(ctx, "p", &berth.File{ID: "file-1", Filename: canary}) },
		func() error { return db.CreateKey(ctx, &berth.Key{ID: "key_1", Hash: keyHash, Name: canary}) },
		func() error {
			return db.CreateContainer(ctx, &store.Container{Project: "p", Body: &berth.Container{ID: "cntr_1", Name: canary}})
		},
		func() error { return db.PutContainerFile(ctx, "p", file("cfile_1")) },
		func() error { return db.PutContainerFile(ctx, "p", file("cfile_2")) },
		func() error { return db.CreateObjects(ctx, "p", conversation, item("msg_1"), item("msg_2")) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	before := count(t, dir, canary)
	if err := errors.Join(db.DeleteResponse(ctx, "p", a.id(0)), db.DeleteFile(ctx, "p", "file-1"), db.DeleteKey(ctx, "key_1"),
		db.DeleteContainerFile(ctx, "p", "cntr_1", "cfile_1"), db.DeleteContainer(ctx, "p", "cntr_1"),
		db.DeleteObject(ctx, "p", item("msg_1").ObjectKey), db.DeleteObject(ctx, "p", conversation.ObjectKey)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if after := count(t, dir, canary); before < 10 || after > 0 {
		t.Errorf("the canary was on the disk %d times, and is %d times", before, after)
	}
}

// A reader of the former state keeps the log; erasing goes on when it has ended.
func TestEraseWaitsForReaders(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "berth.db"))
	defer db.Close()
	a := newAuthor(t, db, 1, canary)
	a.write(t, 10)
	release, err := db.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteResponse(t.Context(), "p", a.id(0)); err != nil {
		t.Fatal(err)
	}
	if done, err := db.Erase(t.Context()); done || err != nil {
		t.Errorf("Erase while somebody reads: %v, %v; want false", done, err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if done, err := db.Erase(t.Context()); !done || err != nil {
		t.Errorf("Erase after that: %v, %v; want true", done, err)
	}
	if n := count(t, dir, canary); n > 0 {
		t.Errorf("the canary is on the disk %d times", n)
	}
}

// A deletion that a crash overtook is erased after the next start.
func TestEraseAfterCrash(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "berth.db"))
	a := newAuthor(t, db, 1, canary)
	a.write(t, 10)
	if err := db.DeleteResponse(t.Context(), "p", a.id(0)); err != nil {
		t.Fatal(err)
	}
	crashed := t.TempDir() // what is on the disk now is what a crash would leave
	for _, name := range []string{"berth.db", "berth.db-wal"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(crashed, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if count(t, crashed, canary) == 0 {
		t.Fatal("the canary is not on the disk after the crash; this test sees nothing")
	}
	if err := open(t, filepath.Join(crashed, "berth.db")).Close(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, crashed, canary); n > 0 {
		t.Errorf("the canary is on the disk %d times", n)
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

// Whatever a page holds, its cells stay.
func FuzzClearGap(f *testing.F) {
	f.Add([]byte{0x0d, 0, 0, 0, 1, 0, 12, 0, 0, 12, 'x', 'y', 'c', 'e', 'l', 'l'}, int64(2))
	f.Fuzz(func(t *testing.T, page []byte, number int64) {
		before := bytes.Clone(page)
		if sqlite.ClearGap(page, number) == bytes.Equal(before, page) {
			t.Error("it does not say whether it changed the page")
		}
		if sqlite.ClearGap(page, number) {
			t.Error("the gap was not cleared at once")
		}
	})
}

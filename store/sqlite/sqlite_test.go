package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/storetest"
)

func open(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		db := open(t, filepath.Join(t.TempDir(), "berth.db"))
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return db
	})
}

// What is deleted is not in the file any more, nor in its log.
func TestDeletedContentIsGone(t *testing.T) {
	const canary = "canary-in-a-coal-mine"
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "berth.db"))
	req := &berth.ResponseRequest{Model: canary, Metadata: map[string]string{"m": canary}}
	r := &store.Response{Project: "p", Request: req, Body: berth.NewResponse("resp_1", 1, req),
		Input: []berth.Item{berth.NewItem(berth.Message{Type: "message", Role: "user", Content: []berth.Content{{Type: "input_text", Text: canary}}})}}
	ev := []store.Event{{Type: berth.EventCreated, Data: []byte(`{"text":"` + canary + `"}`)}}
	if err := db.CreateResponse(t.Context(), r, ev, store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if !inFiles(t, dir, canary) {
		t.Fatal("the canary is not on the disk before the deletion; this test sees nothing")
	}
	if err := db.DeleteResponse(t.Context(), "p", "resp_1"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if inFiles(t, dir, canary) {
		t.Error("the canary is still on the disk")
	}
}

func inFiles(t *testing.T, dir, text string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		content, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) {
			return true
		}
	}
	return false
}

// A process that is killed while it writes loses nothing of what it was told is saved.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	if os.Getenv("BERTH_TEST_WRITER") != "" {
		write(os.Getenv("BERTH_TEST_WRITER"))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "BERTH_TEST_WRITER="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	saved := -1
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "saved %d", &saved); err == nil && saved == 300 {
			cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if saved < 300 {
		t.Fatalf("the writer ended by itself after %d", saved)
	}
	db := open(t, path)
	defer db.Close()
	for i := range saved + 1 {
		if _, err := db.GetFile(t.Context(), "p", berth.FileID(fmt.Sprint("file-", i))); err != nil {
			t.Fatalf("file %d of %d: %v", i, saved, err)
		}
	}
}

// write saves files until it is killed, and says of each that it is saved.
func write(path string) {
	db, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		if err := db.CreateFile(context.Background(), "p", &berth.File{ID: berth.FileID(fmt.Sprint("file-", i))}); err != nil {
			panic(err)
		}
		fmt.Println("saved", i)
	}
}

// Two processes, the server and the command line, may use one file.
func TestTwoAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	a, b := open(t, path), open(t, path)
	defer a.Close()
	defer b.Close()
	if err := a.CreateKey(t.Context(), &berth.Key{ID: "key_1", Hash: [32]byte{1}}); err != nil {
		t.Fatal(err)
	}
	if keys, err := b.ListKeys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("the other sees %d keys, %v", len(keys), err)
	}
}

func TestRefused(t *testing.T) {
	if _, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "dir", "x.db"), nil); err == nil {
		t.Error("a file in no directory was opened")
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), &sqlite.Options{Synchronous: "off"}); err == nil || !strings.Contains(err.Error(), "synchronous") {
		t.Errorf("synchronous off: got %v", err)
	}
	broken := filepath.Join(t.TempDir(), "broken.db")
	if err := os.WriteFile(broken, bytes.Repeat([]byte("not a database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), broken, nil); err == nil {
		t.Error("a file that is no database was opened")
	}
}

func BenchmarkAppendEvents(b *testing.B) {
	for _, streams := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "berth.db"))
			defer db.Close()
			data := []byte(`{"type":"response.output_text.delta","sequence_number":7,"item_id":"msg_0","output_index":0,"content_index":0,"delta":"word","logprobs":[]}`)
			var writers sync.WaitGroup
			each := b.N/streams + 1
			b.ResetTimer()
			for i := range streams {
				id := berth.ResponseID(fmt.Sprint("resp_", i))
				writers.Go(func() { appendMany(b, db, id, each, data) })
			}
			writers.Wait()
		})
	}
}

// appendMany makes a response and appends events to it, one at a time.
func appendMany(b *testing.B, db *sqlite.DB, id berth.ResponseID, n int, data []byte) {
	req := &berth.ResponseRequest{Model: "m"}
	r := &store.Response{Project: "p", Request: req, Body: berth.NewResponse(id, 1, req)}
	if err := db.CreateResponse(b.Context(), r, nil, store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)}); err != nil {
		b.Error(err)
		return
	}
	for i := range n {
		ev := []store.Event{{SequenceNumber: int64(i), Type: berth.EventOutputTextDelta, Data: data}}
		if err := db.AppendEvents(b.Context(), "p", id, "me", ev, nil); err != nil {
			b.Error(err)
			return
		}
	}
}

func BenchmarkChain(b *testing.B) {
	for _, links := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("links=%d", links), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "berth.db"))
			defer db.Close()
			var previous berth.ResponseID
			for i := range links {
				req := &berth.ResponseRequest{Model: "m", PreviousResponseID: previous}
				in := berth.NewItem(berth.Message{Type: "message", Role: "user", Content: []berth.Content{{Type: "input_text", Text: strings.Repeat("word ", 40)}}})
				r := &store.Response{Project: "p", Request: req, Input: []berth.Item{in}, Body: berth.NewResponse(berth.ResponseID(fmt.Sprint("resp_", i)), 1, req)}
				r.Body.Output = []berth.Item{in}
				if err := db.CreateResponse(b.Context(), r, nil, store.Lease{}); err != nil {
					b.Fatal(err)
				}
				previous = r.Body.ID
			}
			for b.Loop() {
				if got, err := db.Chain(b.Context(), "p", previous); err != nil || len(got) != links {
					b.Fatalf("%d links, %v", len(got), err)
				}
			}
		})
	}
}

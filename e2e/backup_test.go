package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/internal/s3test"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// load makes and deletes files and makes responses until stop is called, which returns the responses
// that were made before the call of mark.
func (l *legacy) load(s *server) (mark func(), stop func()) {
	var ended atomic.Bool
	var mu sync.Mutex
	var all sync.WaitGroup
	var marked []string
	made := []string{}
	for range 3 {
		all.Go(func() {
			c := s.client()
			for !ended.Load() {
				f, err := c.Files.New(s.t.Context(),
					openai.FileNewParams{File: openai.File(strings.NewReader(strings.Repeat("x", 100_000)), "f.txt",
						"text/plain"), Purpose: openai.FilePurposeUserData})
				if err != nil {
					s.t.Errorf("upload: %v", err)
					return
				}
				r, err := c.Responses.New(s.t.Context(), responses.ResponseNewParams{Model: "scripted",
					Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}})
				if err != nil {
					s.t.Errorf("respond: %v", err)
					return
				}
				mu.Lock()
				made = append(made, r.ID)
				mu.Unlock()
				if _, err := c.Files.Delete(s.t.Context(), f.ID); err != nil {
					s.t.Errorf("delete: %v", err)
					return
				}
			}
		})
	}
	mark = func() {
		s.waitUntil("there is load", func() bool {
			mu.Lock()
			defer mu.Unlock()
			marked = append([]string{}, made...)
			return len(marked) >= 10
		})
	}
	stop = func() {
		ended.Store(true)
		all.Wait()
		l.responses = append(marked, l.responses...)
	}
	return mark, stop
}

// TestBackupRestore backs up a server under load, with its state in PostgreSQL and in a bucket, and
// restores it to a file and a directory; then the other way round. Each time the chain continues, in a
// new container.
func TestBackupRestore(t *testing.T) {
	db, bucket := pgtest.Start(t), s3test.Start(t)
	remote := func(name string) string {
		return "store: " + db.NewDatabase(t) + "\nblobs: " + bucket.Bucket(name) + "\n"
	}
	s := newServerWith(t, remote("one"))
	l := newLegacy(s)
	for _, config := range []string{"", remote("two")} {
		mark, stop := l.load(s)
		mark()
		dir := filepath.Join(t.TempDir(), "backup")
		s.must("backup", dir, "--state", s.state)
		stop()
		next := prepareServer(t, t.TempDir(), config)
		next.must(append([]string{"restore", dir, "--state", next.state}, next.args...)...)
		next.start()
		t.Cleanup(next.close)
		l.check(next, false)
		// Every file that is listed can be read.
		c := next.client()
		for page := c.Files.ListAutoPaging(t.Context(), openai.FileListParams{}); page.Next(); {
			resp, err := c.Files.Content(t.Context(), page.Current().ID)
			if err != nil {
				t.Errorf("a file from during the backup: %v", err)
				continue
			}
			resp.Body.Close()
		}
		s = next
	}
	if len(bucket.Objects("two")) < len(l.files) {
		t.Errorf("the bucket has %v", bucket.Objects("two"))
	}
}

// TestBackupKilled kills berth backup and berth restore at any moment. The rest is not taken for a
// backup, or for a state, unless it is complete.
func TestBackupKilled(t *testing.T) {
	db, bucket := pgtest.Start(t), s3test.Start(t)
	s := newServer(t)
	l := newLegacy(s)
	dir := t.TempDir()
	killed := 0
	for n := 0; n < 8; n++ {
		to := filepath.Join(dir, string(rune('a'+n)))
		cmd := s.command("backup", to, "--state", s.state)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		steps := []string{"berth.db", "files", "audit", "berth.keys"}
		s.waitUntil("the backup has begun", func() bool {
			_, err1 := os.Stat(filepath.Join(to+".incomplete", steps[n%len(steps)]))
			_, err2 := os.Stat(to)
			return err1 == nil || err2 == nil
		})
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil {
			continue
		}
		if _, err := os.Stat(to); err == nil {
			continue // it was complete
		}
		killed++
		s.refuses("not a complete backup", "restore", to+".incomplete", "--state", t.TempDir())
		s.refuses("was interrupted", "backup", to, "--state", s.state)
	}
	if killed == 0 {
		t.Log("each backup was complete before it was killed")
	}
	whole := filepath.Join(dir, "whole")
	s.must("backup", whole, "--state", s.state)

	restored := false
	next := prepareServer(t, t.TempDir(), "")
	for n := 0; n < 12; n++ {
		config := "store: " + db.NewDatabase(t) + "\nblobs: " + bucket.Bucket("bucket-"+string(rune('a'+n))) + "\n"
		state := t.TempDir()
		next = prepareServer(t, state, config)
		restore := append([]string{"restore", whole, "--state", state}, next.args...)
		cmd := next.command(restore...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		steps := []string{"restore.incomplete", "files", "berth.keys", "seal.key", "berth.db-wal", "store_url"}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		var ended bool
		next.waitUntil("the restore has begun", func() bool {
			select {
			case <-done:
				ended = true
			default:
			}
			_, err := os.Stat(filepath.Join(state, steps[n%len(steps)]))
			return err == nil || ended
		})
		if !ended {
			_ = cmd.Process.Kill()
			ended = receive(t, done, "the restore ends") == nil
		}
		_, err := os.Stat(filepath.Join(state, "restore.incomplete"))
		if ended || err != nil {
			continue // it was complete
		}
		next.refuses("run berth restore again", append([]string{"serve", "--listen", "127.0.0.1:0", "--state", state},
			next.args...)...)
		next.refuses("run berth restore again", "key", "list", "--state", state)
		if _, err := os.Stat(filepath.Join(state, "store_url")); err == nil {
			continue // the database is complete, and a restore needs an empty one
		}
		next.must(restore...)
		restored = true
		break
	}
	if !restored {
		t.Fatal("no restore was killed before its end")
	}
	next.start()
	t.Cleanup(next.close)
	l.check(next, false)
}

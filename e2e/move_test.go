package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/internal/s3test"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// stop stops the server in order.
func (s *server) stop() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		s.t.Fatalf("the server did not stop in order: %v\n%s", err, s.log)
	}
}

// configure sets the configuration file of the next start.
func (s *server) configure(config string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.args = []string{"--config", path}
}

// must runs the command line and returns its output.
func (s *server) must(args ...string) string {
	s.t.Helper()
	out, errs, err := s.berth(args...)
	if err != nil {
		s.t.Fatalf("berth %q: %v: %s%s", args, err, out, errs)
	}
	return out
}

// refuses runs the command line, which must fail with a message.
func (s *server) refuses(want string, args ...string) {
	s.t.Helper()
	if out, errs, err := s.berth(args...); err == nil || !strings.Contains(errs, want) || strings.Contains(errs,
		pgtest.Password) {
		s.t.Errorf("berth %q: got %v, %s%s, want %q", args, err, out, errs, want)
	}
}

// A legacy is what clients made on a server whose state then moves.
type legacy struct {
	responses    []string
	turns        int // of the chain, which count in its container
	conversation string
	files        map[string]string // id to content
	deleted      []string          // files
}

// newLegacy makes something of each kind: a chain in a container, a conversation, files. It deletes
// one of the files.
func newLegacy(s *server) *legacy {
	s.t.Helper()
	l := &legacy{files: map[string]string{}}
	c := s.client()
	conversation, err := c.Conversations.New(s.t.Context(),
		conversations.ConversationNewParams{Items: []responses.ResponseInputItemUnionParam{userItem("one"),
			userItem("two")}})
	if err != nil {
		s.t.Fatal(err)
	}
	l.conversation = conversation.ID
	for _, content := range []string{"a small file\n", strings.Repeat("a large file ", 2<<20), "a deleted file"} {
		f, err := c.Files.New(s.t.Context(), openai.FileNewParams{File: openai.File(strings.NewReader(content), "f.txt",
			"text/plain"), Purpose: openai.FilePurposeUserData})
		if err != nil {
			s.t.Fatal(err)
		}
		if content != "a deleted file" {
			l.files[f.ID] = content
			continue
		}
		if _, err := c.Files.Delete(s.t.Context(), f.ID); err != nil {
			s.t.Fatal(err)
		}
		l.deleted = append(l.deleted, f.ID)
	}
	l.step(s)
	return l
}

// step continues the chain with a turn in its container.
func (l *legacy) step(s *server) {
	s.t.Helper()
	task := shellTask(fence("echo turn >>turns; wc -l <turns"))
	if len(l.responses) > 0 {
		task.PreviousResponseID = openai.String(l.responses[len(l.responses)-1])
	}
	r, err := s.client().Responses.New(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	l.turns++
	l.responses = append(l.responses, r.ID)
	if got := stdouts(r); len(got) != 1 || got[0] != strconv.Itoa(l.turns)+"\n" {
		s.t.Errorf("turn %d of the chain: got %q", l.turns, got)
	}
}

// check checks that everything is there, and uses it. If the containers ended with the move, the chain
// continues in a new one.
func (l *legacy) check(s *server, containersLive bool) {
	s.t.Helper()
	c := s.client()
	for _, id := range l.responses {
		if r, err := c.Responses.Get(s.t.Context(), id, responses.ResponseGetParams{}); err != nil ||
			r.Status != "completed" {
			s.t.Errorf("response %s: got %v, %v", id, r, err)
		}
	}
	if types := itemTypes(s.t, c, l.conversation); len(types) != 2 {
		s.t.Errorf("the conversation has the items %v", types)
	}
	for id, want := range l.files {
		resp, err := c.Files.Content(s.t.Context(), id)
		if err != nil {
			s.t.Errorf("file %s: %v", id, err)
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != want {
			s.t.Errorf("file %s: got %d bytes, %v, want %d", id, len(got), err, len(want))
		}
	}
	for _, id := range l.deleted {
		if _, err := c.Files.Get(s.t.Context(), id); err == nil {
			s.t.Errorf("the deleted file %s exists", id)
		}
	}
	if !containersLive {
		l.turns = 0
	}
	l.step(s)
	s.must("audit", "verify", "--state", s.state)
}

// TestMove moves the state of a server to PostgreSQL and a bucket, and back. Each time a server continues
// where the former one stopped, with the same containers.
func TestMove(t *testing.T) {
	needsLocalState(t)
	db, bucket := pgtest.Start(t), s3test.Start(t)
	url, blobs := db.URL(), bucket.Bucket("contents")
	s := newServer(t)
	l := newLegacy(s)
	s.refuses("another server", "store", "copy", "sqlite", url, "--state", s.state)
	s.refuses("another server", "blobs", "copy", "local", blobs, "--state", s.state)
	s.stop()
	s.refuses("has no database", "store", "copy", "sqlite", url, "--state", t.TempDir())
	s.refuses("is its file berth.db", "store", "copy", url, "sqlite", "--state", s.state)

	out := s.must("store", "copy", "sqlite", url, "--state", s.state)
	if !strings.Contains(out, "responses") {
		t.Errorf("berth store copy: got %s", out)
	}
	s.configure("store: " + url + "\n")
	s.start()
	l.check(s, true)
	if left, err := filepath.Glob(filepath.Join(s.state, "berth.db*")); err != nil || len(left) != 1 ||
		!strings.Contains(left[0], ".copied-") {
		t.Errorf("the state directory has %v, %v", left, err)
	}
	s.refuses("another server", "store", "copy", url, "sqlite", "--state", s.state)
	s.stop()

	s.must("blobs", "copy", "local", blobs, "--state", s.state)
	s.refuses("are in s3://contents", "blobs", "copy", "local", blobs, "--state", s.state)
	s.configure("store: " + url + "\nblobs: " + blobs + "\n")
	for _, kind := range []string{"files", "skills", "uploads", "snapshots"} {
		if err := os.RemoveAll(filepath.Join(s.state, kind)); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	l.check(s, true)
	s.stop()

	s.must("store", "copy", url, "sqlite", "--state", s.state)
	s.must("blobs", "copy", blobs, "local", "--state", s.state)
	if err := db.Stop(); err != nil {
		t.Fatal(err)
	}
	bucket.Stop()
	s.args = nil
	s.start()
	l.check(s, true)
}

// TestMoveKilled kills berth store copy, also right after it has switched the state directory to the
// copy. A server continues with the database that the directory names then, with all rows.
func TestMoveKilled(t *testing.T) {
	needsLocalState(t)
	db := pgtest.Start(t)
	s := newServer(t)
	l := newLegacy(s)
	s.stop()
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(s.state, name))
		return err == nil
	}
	// kill runs a copy, and kills it when the condition holds or it has ended.
	kill := func(when func() bool, args ...string) {
		t.Helper()
		cmd := s.command(append([]string{"store", "copy", "--state", s.state}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		s.waitUntil("the copy has come so far", func() bool { return when() || len(done) > 0 })
		_ = cmd.Process.Kill()
		receive(t, done, "the copy ends")
	}
	url := db.NewDatabase(t)
	kill(func() bool { return exists("berth.db-wal") }, "sqlite", url)
	if !exists("store_url") { // the copy was not complete, and the file is in use
		s.start()
		l.check(s, true)
		s.stop()
		url = db.NewDatabase(t)
		kill(func() bool { return exists("store_url") }, "sqlite", url)
	}
	s.configure("store: " + url + "\n")
	s.start()
	l.check(s, true)
	s.stop()

	kill(func() bool { return exists("berth.db.incomplete") }, url, "sqlite")
	if !exists("berth.db") {
		s.start()
		l.check(s, true)
		s.stop()
		kill(func() bool { return exists("berth.db") }, url, "sqlite")
	}
	if exists("store_url") { // the directory still uses PostgreSQL
		s.start()
		l.check(s, true)
		s.stop()
		s.refuses("berth.db exists", "store", "copy", url, "sqlite", "--state", s.state)
		if err := os.Remove(filepath.Join(s.state, "berth.db")); err != nil {
			t.Fatal(err)
		}
		s.must("store", "copy", url, "sqlite", "--state", s.state)
	}
	s.args = nil
	s.start()
	l.check(s, true)
}

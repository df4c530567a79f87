package vectorstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/tokens"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const mine berth.ProjectID = "proj_mine"

// A shop is a service with its parts.
type shop struct {
	*Service
	t     *testing.T
	dir   string
	db    *sqlite.DB
	files map[berth.FileID]string
	now   time.Time
	opts  Options
}

func (s *shop) Get(_ context.Context, _ berth.ProjectID, id berth.FileID) (*berth.File, error) {
	if _, ok := s.files[id]; !ok {
		return nil, berth.Errorf(berth.CodeNotFound, "No such File object: %s", id)
	}
	return &berth.File{ID: id, Filename: string(id) + ".txt"}, nil
}

func (s *shop) Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error) {
	f, err := s.Get(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	return io.NopCloser(strings.NewReader(s.files[id])), f, nil
}

// A filesOf adapts a shop to Files, whose Get differs from that of Service.
type filesOf struct{ *shop }

func (f filesOf) Get(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error) {
	return f.shop.Get(ctx, p, id)
}

func newShop(t *testing.T, change func(*Options)) *shop {
	t.Helper()
	s := &shop{t: t, dir: t.TempDir(), files: map[berth.FileID]string{}, now: time.Unix(1_800_000_000, 0)}
	var err error
	if s.db, err = sqlite.Open(t.Context(), filepath.Join(s.dir, "berth.db"), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	s.opts = Options{Objects: s.db, Files: filesOf{s}, Now: func() time.Time {
		return s.now
	}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Text: func(_ context.Context, _ string, r io.Reader) (string, error) {
			raw, err := io.ReadAll(r)
			return string(raw), err
		}}
	if change != nil {
		change(&s.opts)
	}
	s.Service = New(s.opts)
	return s
}

// stock creates a vector store with files and reads them.
func (s *shop) stock(files map[berth.FileID]string) berth.VectorStoreID {
	s.t.Helper()
	v, err := s.Create(s.t.Context(), mine,
		CreateRequest{ExpiresAfter: &berth.VectorExpiry{Anchor: "last_active_at", Days: 1}})
	if err != nil {
		s.t.Fatal(err)
	}
	for id, text := range files {
		s.files[id] = text
		if _, err := s.AddFile(s.t.Context(), mine, v.ID, FileRequest{FileID: id}); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.ReadAll(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return v.ID
}

func (s *shop) found(id berth.VectorStoreID, query string) (files []berth.FileID) {
	s.t.Helper()
	got, err := s.Search(s.t.Context(), mine, []berth.VectorStoreID{id}, Query{Queries: []string{query}, Limit: 10})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range got.List {
		files = append(files, r.FileID)
	}
	return files
}

// A service that starts anew continues what another one began, and finds the same.
func TestRestart(t *testing.T) {
	s := newShop(t, nil)
	id := s.stock(map[berth.FileID]string{"file-a": "the tide is high"})
	s.files["file-b"] = "a second tide"
	if _, err := s.AddFile(t.Context(), mine, id, FileRequest{FileID: "file-b"}); err != nil {
		t.Fatal(err)
	}
	s.Service = New(s.opts) // file-b is not read yet
	if got := s.found(id, "tide"); len(got) != 1 {
		t.Errorf("found %v", got)
	}
	if err := s.ReadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.found(id, "second"); len(got) != 1 || got[0] != "file-b" {
		t.Errorf("found %v", got)
	}
}

// A project with many files does not delay the one file of another project.
func TestProjectsTakeTurns(t *testing.T) {
	var read []string
	s := newShop(t, nil)
	s.opts.Text = func(_ context.Context, _ string, r io.Reader) (string, error) {
		raw, err := io.ReadAll(r)
		read = append(read, string(raw))
		return string(raw), err
	}
	s.Service = New(s.opts)
	add := func(p berth.ProjectID, n int) {
		v, err := s.Create(t.Context(), p, CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			id := berth.FileID(fmt.Sprintf("file-%s-%d", p, i))
			s.files[id] = string(p)
			if _, err := s.AddFile(t.Context(), p, v.ID, FileRequest{FileID: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(mine, 20)
	add("proj_small", 1)
	if err := s.ReadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i := slices.Index(read, "proj_small"); i < 0 || i >= batch || len(read) != 21 {
		t.Errorf("%d files were read; that of the small project was number %d", len(read), i)
	}
}

// A file whose reading ends the process again and again is given up.
func TestPoison(t *testing.T) {
	s := newShop(t, func(o *Options) {
		o.Text = func(context.Context, string, io.Reader) (string, error) { return "", errors.New("gone") }
	})
	id := s.stock(map[berth.FileID]string{"file-a": "x"})
	for range maxAttempts {
		s.now = s.now.Add(time.Hour)
		if err := s.ReadAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f, err := s.File(t.Context(), mine, id, "file-a")
	if err != nil || f.Status != berth.VectorFailed || f.LastError.Code != "server_error" ||
		strings.Contains(f.LastError.Message, "gone") {
		t.Errorf("got %+v, %v", f, err)
	}
}

// The expiry of a store deletes its text and keeps its record.
func TestExpire(t *testing.T) {
	s := newShop(t, nil)
	id := s.stock(map[berth.FileID]string{"file-a": "the tide is high"})
	s.now = s.now.Add(20 * time.Hour)
	if got := s.found(id, "tide"); len(got) != 1 {
		t.Errorf("found %v", got)
	}
	s.now = s.now.Add(20 * time.Hour)
	if err := s.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Service.Get(t.Context(), mine, id); err != nil || v.Status != berth.VectorCompleted {
		t.Errorf("used 20 hours ago: got %+v, %v", v, err)
	}
	s.now = s.now.Add(20 * time.Hour)
	for range 2 {
		if err := s.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.Service.Get(t.Context(), mine, id)
	if err != nil || v.Status != berth.VectorExpired || v.FileCounts.Total != 0 {
		t.Errorf("expired: got %+v, %v", v, err)
	}
	if list, _, err := s.db.ListObjects(t.Context(), mine, store.KindVectorText, string(id),
		store.Page{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("%d texts are left, %v", len(list), err)
	}
	if _, err := s.Search(t.Context(), mine, []berth.VectorStoreID{id}, Query{Queries: []string{"x"},
		Limit: 1}); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("search: got %v", err)
	}
}

// No file of the state directory contains a word of a text, neither while the store is
// searched nor after its deletion.
func TestAtRest(t *testing.T) {
	s := newShop(t, nil)
	const canary = "quinquereme"
	id := s.stock(map[berth.FileID]string{"file-a": "a " + canary + " of Nineveh"})
	if got := s.found(id, canary); len(got) != 1 {
		t.Fatalf("found %v", got)
	}
	clean := func(when string) {
		t.Helper()
		err := filepath.WalkDir(s.dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			if bytes.Contains(raw, []byte(canary)) {
				t.Errorf("%s: %s contains the canary", when, path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	clean("indexed")
	if err := s.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	clean("deleted")
}

// Indexes that do not fit memory are dropped and built again.
func TestMemory(t *testing.T) {
	s := newShop(t, func(o *Options) { o.Memory = 100 })
	text := "tide " + strings.Repeat("word ", 50)
	a, b := s.stock(map[berth.FileID]string{"file-a": text}), s.stock(map[berth.FileID]string{"file-b": text})
	for range 3 {
		if len(s.found(a, "tide")) != 1 || len(s.found(b, "tide")) != 1 {
			t.Fatal("nothing was found")
		}
	}
	held := 0
	for _, f := range s.shelves.all {
		if f.index != nil {
			held++
		}
	}
	if held != 1 {
		t.Errorf("%d indexes are in memory, want 1", held)
	}
	got, err := s.Search(t.Context(), mine, []berth.VectorStoreID{a, b}, Query{Queries: []string{"tide"}, Limit: 10})
	if err != nil || len(got.List) != 2 {
		t.Errorf("both: got %v, %v", got, err)
	}
}

// A text of many short lines has few pieces.
func TestPiecesOfShortLines(t *testing.T) {
	for _, line := range []string{"\n", "a\n", " \n"} {
		text := strings.Repeat(line, 1<<20/len(line))
		parts, all := pieces(text), 0
		for _, p := range parts {
			all += len(p.text)
		}
		if all != len(text) || len(parts) > len(text)/minPiece+1 {
			t.Errorf("%q: %d pieces with %d of %d bytes", line, len(parts), all, len(text))
		}
	}
}

func TestSplit(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, "Line %d is about harbours.\n", i)
	}
	b.WriteString(strings.Repeat("ß", 5000))
	chunks := split(b.String(), berth.StaticChunking{MaxChunkSizeTokens: 200, ChunkOverlapTokens: 100})
	for i, c := range chunks {
		if n := tokens.Cl100k().Count(c); n > 200 {
			t.Errorf("chunk %d has %d tokens", i, n)
		}
	}
	all := strings.Join(chunks, "\n")
	for i := range 500 {
		if !strings.Contains(all, fmt.Sprintf("Line %d is about harbours.", i)) {
			t.Errorf("line %d is lost", i)
		}
	}
	if !strings.Contains(chunks[1], strings.SplitN(chunks[0], "\n", 200)[len(strings.Split(chunks[0], "\n"))-1]) {
		t.Error("the second chunk does not repeat the end of the first")
	}
	if got := split(" \n\n ", berth.StaticChunking{MaxChunkSizeTokens: 100}); len(got) != 0 {
		t.Errorf("white space: got %q", got)
	}
}

// Equal passages are found in the order of their files' ids, whichever was read first, also
// where the limit cuts among them.
func TestEqualPassages(t *testing.T) {
	for _, hybrid := range []bool{false, true} {
		for _, order := range []string{"abcdef", "fedcba", "cafebd"} {
			s := newShop(t, func(o *Options) {
				if hybrid {
					o.Embedder = &fakeEmbedder{name: "fake"}
				}
			})
			id := s.stock(map[berth.FileID]string{"file-z": "a harbour"})
			for _, name := range strings.Split(order, "") {
				file := berth.FileID("file-" + name)
				s.files[file] = "the tide is high"
				if _, err := s.AddFile(t.Context(), mine, id, FileRequest{FileID: file}); err != nil {
					t.Fatal(err)
				}
				if err := s.ReadAll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Search(t.Context(), mine, []berth.VectorStoreID{id}, Query{Queries: []string{"tide"},
				Limit: 4})
			if err != nil {
				t.Fatal(err)
			}
			files := ""
			for _, r := range got.List {
				files += strings.TrimPrefix(string(r.FileID), "file-")
			}
			if files != "abcd" {
				t.Errorf("read in the order %s, hybrid %v: found %s", order, hybrid, files)
			}
		}
	}
}

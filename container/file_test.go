package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// listed returns a container's files as "path size source", oldest first.
func (h *harness) listed(id berth.ContainerID) []string {
	h.t.Helper()
	files, more, err := h.k.files.List(h.t.Context(), mine, id, store.Page{Limit: 100, Ascending: true})
	if err != nil || more {
		h.t.Fatalf("Files: %v, more %v", err, more)
	}
	var out []string
	for _, f := range files {
		if f.Object != "container.file" || f.ContainerID != id || f.CreatedAt < h.get(id).CreatedAt ||
			f.CreatedAt > h.time().Unix() {
			h.t.Errorf("invalid file %+v", f)
		}
		out = append(out, fmt.Sprint(f.Path, " ", f.Bytes, " ", f.Source))
	}
	return out
}

func (h *harness) put(id berth.ContainerID, name, content string) *berth.ContainerFile {
	h.t.Helper()
	f, err := h.k.files.Put(h.t.Context(), mine, id, name, strings.NewReader(content))
	if err != nil {
		h.t.Fatalf("PutFile %s: %v", name, err)
	}
	return f
}

func (h *harness) read(id berth.ContainerID, cfile berth.CFileID) (string, error) {
	body, f, err := h.k.files.Open(h.t.Context(), mine, id, cfile)
	if err != nil {
		return "", err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err == nil && int64(len(content)) != f.Bytes {
		h.t.Errorf("%s: got %d bytes announced and %d read", f.Path, f.Bytes, len(content))
	}
	return string(content), err
}

func TestFilesFollowTheDirectory(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.put(id, "in.csv", "1,2\n")
	h.sh(id, `mkdir -p out/deep && wc in.csv >out/deep/count && echo chart >chart.png
		ln -s /etc/passwd link; ln -s /etc dir; ln -s in.csv inner; mkfifo pipe; mkdir empty; touch $'new\nline'`)
	want := []string{"/mnt/data/in.csv 4 user", "/mnt/data/chart.png 6 assistant",
		"/mnt/data/out/deep/count 13 assistant"}
	got := h.listed(id)
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	ids := map[string]berth.CFileID{}
	files, _, err := h.k.files.List(t.Context(), mine, id, store.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		ids[f.Path] = f.ID
	}
	h.sh(id, `echo more >>in.csv; rm chart.png; mv out/deep/count out/`)
	want = []string{"/mnt/data/in.csv 9 user", "/mnt/data/out/count 13 assistant"}
	if diff := cmp.Diff(sorted(want), sorted(h.listed(id))); diff != "" {
		t.Errorf("files after changes (-want +got):\n%s", diff)
	}
	if f, err := h.k.files.Get(t.Context(), mine, id, ids["/mnt/data/in.csv"]); err != nil || f.Bytes != 9 {
		t.Errorf("the id of a path changed: %+v, %v", f, err)
	}
	if got, err := h.read(id, ids["/mnt/data/in.csv"]); err != nil || got != "1,2\nmore\n" {
		t.Errorf("read %q, %v", got, err)
	}
	_, err = h.read(id, ids["/mnt/data/chart.png"])
	wantError(t, err, berth.CodeNotFound, "",
		"File "+string(ids["/mnt/data/chart.png"])+" not found on container "+string(id)+".")
	_, err = h.k.files.Get(t.Context(), mine, id, "cfile_none")
	wantError(t, err, berth.CodeNotFound, "", "cfile_none")
}

func sorted(s []string) map[string]bool {
	m := map[string]bool{}
	for _, e := range s {
		m[e] = true
	}
	return m
}

func TestFilesPages(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	for i := range 5 {
		h.pass(1e9)
		h.put(id, fmt.Sprint(i), "")
	}
	for _, ascending := range []bool{false, true} {
		var got []string
		page := store.Page{Limit: 2, Ascending: ascending}
		for {
			files, more, err := h.k.files.List(t.Context(), mine, id, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				got = append(got, filepath.Base(f.Path))
				page.After = string(f.ID)
			}
			if !more {
				break
			}
		}
		want := "4 3 2 1 0"
		if ascending {
			want = "0 1 2 3 4"
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("ascending %v: got %s, want %s", ascending, s, want)
		}
	}
	if _, _, err := h.k.files.List(t.Context(), mine, id, store.Page{Limit: 1, After: "cfile_none"}); !errors.Is(err,
		store.ErrNotFound) {
		t.Errorf("after an unknown file: got %v", err)
	}
}

// Files get ids after a call even without a list.
func TestCallCollectsFiles(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.sh(id, "touch made")
	s := h.k.index.lookup(mine, id)
	for { // until the scan after the call has run
		if err := s.files.lock.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		files, err := h.store.ContainerFiles(t.Context(), mine, id)
		s.files.lock.release()
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 1 && files[0].Path == "/mnt/data/made" && files[0].Source == "assistant" {
			return
		}
	}
}

func TestPutFile(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	for _, name := range []string{"a.txt", "a b/c d.txt", "ümläut/日本.txt", ".hidden", "..a", "a..b/c",
		strings.Repeat("x", 255)} {
		f := h.put(id, name, "content of "+name)
		if f.Path != "/mnt/data/"+name || f.Source != "user" || f.Bytes != int64(len("content of "+name)) {
			t.Errorf("%s: got %+v", name, f)
		}
		if got, err := h.read(id, f.ID); err != nil || got != "content of "+name {
			t.Errorf("%s: read %q, %v", name, got, err)
		}
	}
	first := h.put(id, "a.txt", "1")
	if second := h.put(id, "a.txt", "22"); second.ID != first.ID || second.Bytes != 2 {
		t.Errorf("replaced: got %+v, want id %s and 2 bytes", second, first.ID)
	}
	h.sh(id, "echo made >b.txt")
	h.listed(id)
	if f := h.put(id, "b.txt", "mine"); f.Source != "user" {
		t.Errorf("an upload over a command's file has source %s", f.Source)
	}
}

func TestPutFileNames(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	outside := filepath.Join(h.driver.box(string(id)).dir, "outside")
	for _, name := range []string{"", ".", "..", "/", "/etc/passwd", "/mnt/data/a", "../outside", "a/../../outside",
		"a/..", "a//b", "a/", "./a",
		"a\x00b", "a\nb", "a\x1b[2J", "a\u0085b", "a\xffb", "a\x7f", strings.Repeat("x", 256),
		strings.Repeat("x/", 40) + "x", strings.Repeat("a/b", 2000), ".berth-X", "d/.berth-X"} {
		_, err := h.k.files.Put(t.Context(), mine, id, name, strings.NewReader("bad"))
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeInvalid || e.Param != "file" {
			t.Errorf("%.40q: got %v, want it refused", name, err)
		}
	}
	// A link inside the container does not lead out of the directory either.
	h.sh(id, "ln -s .. up; ln -s /tmp tmp; mkdir d")
	for _, name := range []string{"up/outside", "tmp/berth-outside", "d"} {
		_, err := h.k.files.Put(t.Context(), mine, id, name, strings.NewReader("bad"))
		wantError(t, err, berth.CodeInvalid, "", "cannot be written")
	}
	for _, path := range []string{outside, "/tmp/berth-outside"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was written: %v", path, err)
		}
	}
	if got := h.sh(id, "ls -A"); got != "d\ntmp\nup\n" {
		t.Errorf("the directory has %q", got)
	}
}

// A file that becomes a link is not read through it.
func TestOpenFileFollowsNoLinkOut(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	f := h.put(id, "a", "a")
	g := h.put(id, "sub/b", "b")
	h.sh(id, "ln -sf /etc/passwd a; rm -r sub; ln -s /etc sub; touch sub; mkfifo p")
	for _, cfile := range []berth.CFileID{f.ID, g.ID} {
		if got, err := h.read(id, cfile); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("read %q, %v", got, err)
		}
		if err := h.k.files.Delete(t.Context(), mine, id, cfile); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("DeleteFile: %v", err)
		}
	}
}

func TestPutFileReaderFails(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	_, err := h.k.files.Put(t.Context(), mine, id, "a", io.MultiReader(strings.NewReader("half"), errReader{}))
	if err != io.ErrUnexpectedEOF {
		t.Errorf("got %v, want the reader's own error", err)
	}
	if got := h.listed(id); len(got) > 0 {
		t.Errorf("a partial file remains: %v", got)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestDeleteFile(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	f := h.put(id, "dir/a", "a")
	h.put(id, "dir/b", "b")
	if err := h.k.files.Delete(t.Context(), mine, id, f.ID); err != nil {
		t.Fatal(err)
	}
	if got := h.sh(id, "find . -type f"); got != "./dir/b\n" {
		t.Errorf("left: %q", got)
	}
	wantError(t, h.k.files.Delete(t.Context(), mine, id, f.ID), berth.CodeNotFound, "", string(f.ID))
	if diff := cmp.Diff([]string{"/mnt/data/dir/b 1 user"}, h.listed(id)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestAddFiles(t *testing.T) {
	h := newHarness(t)
	h.uploads["file-1"] = upload{"data.csv", "one"}
	h.uploads["file-2"] = upload{"data.csv", "two"}
	h.uploads["file-3"] = upload{"../../etc/\x1bcron\n", "three"}
	h.uploads["file-4"] = upload{"..", "four"}
	h.uploads["file-5"] = upload{strings.Repeat("ä", 300) + ".csv", "five"}
	all := []berth.FileID{"file-1", "file-2", "file-3", "file-4", "file-5", "file-1"}
	id := h.create(CreateRequest{FileIDs: all}).ID
	long := strings.Repeat("ä", 98) + ".csv"
	if got, want := h.sh(id,
		`for f in *; do echo "$f=$(cat "$f")"; done`),
		"cron=three\ndata-2.csv=two\ndata.csv=one\nfile-4=four\n"+long+"=five\n"; got != want {
		t.Errorf("at the first use:\n%s\nwant:\n%s", got, want)
	}
	h.sh(id, "echo changed >data.csv; mv data-2.csv renamed.csv; touch data-2.csv")
	h.crash() // only the store has the record of added files
	h.start()
	if err := h.k.files.Add(t.Context(), mine, id, all); err != nil {
		t.Fatal(err)
	}
	if got := h.sh(id, "cat data.csv data-2.csv data-3.csv 2>&1"); !strings.HasPrefix(got, "changed\n") ||
		strings.Contains(got, "one") {
		t.Errorf("a changed file became %q", got)
	}
	_, err := h.k.Create(t.Context(), byMe, CreateRequest{FileIDs: []berth.FileID{"file-1", "file-none"}})
	wantError(t, err, berth.CodeNotFound, "", "No such File object: file-none")
	err = h.k.files.Add(t.Context(), mine, id, []berth.FileID{"file-none"})
	if e, ok := errors.AsType[*berth.Error](err); !ok || e.Param != "file_ids[0]" {
		t.Errorf("got %v, want an error about file_ids[0]", err)
	}
}

func TestAddFilesAtOnce(t *testing.T) {
	h := newHarness(t)
	h.uploads["file-1"] = upload{"a", "one"}
	id := h.ready()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := h.k.files.Add(t.Context(), mine, id, []berth.FileID{"file-1"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if diff := cmp.Diff([]string{"/mnt/data/a 3 user"}, h.listed(id)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A file that cannot be copied in ends the container, and its users get the error.
func TestFileVanishesBeforeStart(t *testing.T) {
	h := newHarness(t)
	h.uploads["file-1"] = upload{"a", "one"}
	asked := 0
	h.k.opts.OpenFile = func(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File,
		error) {
		if asked++; asked > 1 {
			return nil, nil, berth.Errorf(berth.CodeNotFound, "No such File object: %s", id)
		}
		return h.openUpload(ctx, p, id)
	}
	id := h.create(CreateRequest{FileIDs: []berth.FileID{"file-1"}}).ID
	_, err := h.trySh(t.Context(), id, "c", "true")
	wantError(t, err, berth.CodeUnavailable, "container_start_failed",
		"its files could not be copied in: No such File object: file-1.")
	h.driver.until(0)
}

// If the working directory was removed, the next file creates it again.
func TestDirectoryRemoved(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.put(id, "a", "a")
	if err := os.RemoveAll(h.work(id)); err != nil {
		t.Fatal(err)
	}
	if got := h.listed(id); len(got) > 0 {
		t.Errorf("files of a removed directory: %v", got)
	}
	_, err := h.k.files.Put(t.Context(), mine, id, "b", strings.NewReader("b"))
	wantError(t, err, berth.CodeInvalid, "", "cannot be written")
}

// With more files than a scan reads, the list is bounded and still contains the user's uploads.
func TestManyFiles(t *testing.T) {
	h := newHarness(t)
	h.k.opts.Bounds.Files = 10
	id := h.ready()
	kept := h.put(id, "zz/last", "x")
	removed := h.put(id, "zz/removed", "x")
	h.sh(id, "rm zz/removed; for i in $(seq 30); do echo >file$i; done")
	got := h.listed(id)
	if len(got) != 11 || !sorted(got)[kept.Path+" 1 user"] || sorted(got)[removed.Path+" 1 user"] {
		t.Errorf("got %d files: %q", len(got), got)
	}
	if content, err := h.read(id, kept.ID); err != nil || content != "x" {
		t.Errorf("got %q, %v", content, err)
	}
	h.sh(id, "rm file*")
	if diff := cmp.Diff([]string{kept.Path + " 1 user"}, h.listed(id)); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "../a", "a\x00", "/a/b", `c:\d`, strings.Repeat("ö", 200) + ".tar.gz", "..", " "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name := plainName(s, "file-1"); checkName(name) != nil || strings.ContainsAny(name, `/\`) ||
			len(name) > 200 {
			t.Errorf("%q became %q", s, name)
		}
		if checkName(s) == nil {
			if full := filepath.Join("/mnt/data", s); full != "/mnt/data/"+s || !filepath.IsLocal(s) {
				t.Errorf("%q was accepted and is %q", s, full)
			}
		}
	})
}

package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
)

// packed returns the files that make build embeds.
func packed(t *testing.T, name, content string) fstest.MapFS {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(content))
	return fstest.MapFS{
		"files/" + name + ".zst":    {Data: w.EncodeAll([]byte(content), nil)},
		"files/" + name + ".sha256": {Data: []byte(hex.EncodeToString(sum[:]) + "\n")},
	}
}

func checkProgram(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("program: got %q, %v, want %q", got, err, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode: got %v, %v, want 0755", info.Mode(), err)
	}
}

func TestExtract(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	files := packed(t, "guest", "program")
	path, err := extract(files, dir, "", "guest")
	if err != nil {
		t.Fatal(err)
	}
	checkProgram(t, path, "program")

	// An intact file is reused; a damaged one is replaced.
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := extract(files, dir, "", "guest"); err != nil || again != path {
		t.Errorf("second time: got %s, %v, want %s", again, err, path)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("an intact program was rewritten: %v", err)
	}
	if err := os.Truncate(path, 3); err != nil {
		t.Fatal(err)
	}
	if again, err := extract(files, dir, "", "guest"); err != nil || again != path {
		t.Errorf("after damage: got %s, %v, want %s", again, err, path)
	}
	checkProgram(t, path, "program")

	other, err := extract(packed(t, "guest", "next"), dir, "", "guest")
	if err != nil || other == path {
		t.Errorf("another program: got %s, %v", other, err)
	}
	checkProgram(t, path, "program") // the old one may be running
}

func TestExtractAtOnce(t *testing.T) {
	dir := t.TempDir()
	files := packed(t, "guest", strings.Repeat("program ", 1<<16))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := extract(files, dir, "", "guest")
			if err != nil {
				t.Error(err)
				return
			}
			checkProgram(t, path, strings.Repeat("program ", 1<<16))
		})
	}
	wg.Wait()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("got %v, %v, want one program", left, err)
	}
}

func TestExtractRefused(t *testing.T) {
	for _, tc := range []struct {
		what   string
		change func(fstest.MapFS)
		want   string // in the error
	}{
		{"nothing embedded", func(m fstest.MapFS) { delete(m, "files/guest.sha256") }, "run make build"},
		{"no program", func(m fstest.MapFS) { delete(m, "files/guest.zst") }, fs.ErrNotExist.Error()},
		{"another program", func(m fstest.MapFS) {
			m["files/guest.zst"] = packed(t, "guest", "other")["files/guest.zst"]
		}, "digest"},
		{"no zstd", func(m fstest.MapFS) { m["files/guest.zst"] = &fstest.MapFile{Data: []byte("garbage")} }, "magic"},
		{"no digest", func(m fstest.MapFS) { m["files/guest.sha256"] = &fstest.MapFile{Data: []byte("\n")} }, "digest"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			files := packed(t, "guest", "program")
			tc.change(files)
			path, err := extract(files, t.TempDir(), t.TempDir(), "guest")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("extract: %q, %v, want an error about %q", path, err, tc.want)
			}
		})
	}
}

func TestBeside(t *testing.T) {
	beside := t.TempDir()
	want := filepath.Join(beside, "guest")
	if err := os.WriteFile(want, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := extract(fstest.MapFS{}, t.TempDir(), beside, "guest"); err != nil || got != want {
		t.Errorf("extract: %s, %v, want %s", got, err, want)
	}
}

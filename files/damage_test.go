package files_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store/sqlite"
)

// If the stored bytes of a file are damaged, Open or the read of the damaged part fails,
// and the log names the file.
func TestDamagedContent(t *testing.T) {
	const size = 200_000 // several chunks
	for name, c := range map[string]struct {
		damage func(path string) error
		late   bool // Open succeeds
	}{
		"missing":     {os.Remove, false},
		"cut":         {func(p string) error { return os.Truncate(p, 100_000) }, false},
		"empty":       {func(p string) error { return os.Truncate(p, 0) }, false},
		"longer":      {func(p string) error { return os.Truncate(p, 300_000) }, false},
		"a directory": {func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, false},
		"a FIFO": {func(p string) error {
			return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600))
		}, false},
		"a link to a device": {func(p string) error {
			return errors.Join(os.Remove(p), os.Symlink("/dev/zero", p))
		}, false},
		"other at the start":  {func(p string) error { return flip(p, 10) }, false},
		"other in the middle": {func(p string) error { return flip(p, 150_000) }, true},
		"other in the last":   {func(p string) error { return flip(p, size) }, true},
		"another file's bytes": {func(p string) error {
			return os.WriteFile(p, make([]byte, size+4*16), 0o600)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			storage, err := blob.OpenDirectory(dir)
			if err != nil {
				t.Fatal(err)
			}
			db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var log bytes.Buffer
			s := files.New(files.Options{Store: db, Contents: storage, Log: slog.New(slog.NewTextHandler(&log, nil))})
			f, err := s.Create(t.Context(), "proj_mine", files.CreateRequest{Filename: "f", Purpose: "user_data"},
				strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.damage(filepath.Join(dir, "proj_mine", string(f.ID))); err != nil {
				t.Fatal(err)
			}
			content, _, err := s.Open(t.Context(), "proj_mine", f.ID)
			if (err == nil) != c.late {
				t.Fatalf("Open: got %v", err)
			}
			if err == nil {
				var n int64
				if n, err = io.Copy(io.Discard, content); err == nil || n >= size {
					t.Errorf("read %d bytes, %v", n, err)
				}
				content.Close()
			}
			e, _ := errors.AsType[*berth.Error](err)
			if e == nil || e.Code != berth.CodeCorrupt || !strings.Contains(e.Message, string(f.ID)) {
				t.Errorf("got %v, want an error that names the file", err)
			}
			if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got,
				"file="+string(f.ID)) {
				t.Errorf("got log %q, want one line with the file", got)
			}
		})
	}
}

// flip changes a byte.
func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] ^= 1
	_, err = f.WriteAt(b[:], at)
	return err
}

package server

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth/internal/beneath"
)

// folder serves GET /folder?root=DIR&path=…: the regular files at and below a path
// in DIR, as a tar. Links are neither followed nor included. Files that vanish during the walk,
// and files whose names are not sayable, are left out.
func (s *Server) folder(w http.ResponseWriter, r *http.Request) {
	root, err := beneath.Open(r.URL.Query().Get("root"))
	if err != nil {
		httpError(w, err)
		return
	}
	defer root.Close()
	at := path.Clean(r.URL.Query().Get("path"))
	st, err := root.Lstat(at)
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		err = &fs.PathError{Op: "open", Path: at, Err: syscall.EINVAL}
	}
	if err != nil {
		httpError(w, err)
		return
	}
	// A write to a stream without a reader blocks, and fails only after a while.
	defer context.AfterFunc(r.Context(), func() {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})()
	w.Header().Set("Content-Type", "application/x-tar")
	out := tar.NewWriter(w)
	if err := writeFolder(out, root, at); err != nil {
		s.opts.Log.Warn("folder", "err", err)
		panic(http.ErrAbortHandler) // so that the reader sees a broken stream, not an end
	}
}

func writeFolder(out *tar.Writer, root *beneath.Root, at string) error {
	err := root.Walk(at, func(name string, kind fs.FileMode) error {
		if !kind.IsRegular() || !sayable(name) {
			return nil
		}
		return writeRegular(out, root, name)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// sayable reports whether a client can name a file: in UTF-8, without control characters.
// Lists leave out other files as well.
func sayable(name string) bool {
	return len(name) < maxPath && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f
	})
}

// maxPath is below the server's limit for paths, whatever the directory.
const maxPath = 3 << 10

// writeRegular writes a file, whose size must not shrink after it was opened.
func writeRegular(out *tar.Writer, root *beneath.Root, name string) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if beneath.Gone(err) {
		return nil // it was removed, or replaced by a link
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	h := &tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: name, Mode: int64(st.Mode().Perm()),
		Size: st.Size(), ModTime: st.ModTime()}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(out, f, st.Size())
	return err
}

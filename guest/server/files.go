package server

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"connectrpc.com/connect"

	"github.com/berth-run/berth/internal/beneath"
)

// download serves GET /files?path=…&username=…: the bytes of a regular file. With the header Berth-Root, which no
// client can send, the path is relative to that directory, and no link leads out of it.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	id, path, err := s.fileRequest(r)
	if err != nil {
		httpError(w, err)
		return
	}
	f, err := s.openFile(r.Header.Get(rootHeader), path, id)
	if errors.Is(err, fs.ErrNotExist) {
		err = connect.NewError(connect.CodeNotFound, fmt.Errorf("path '%s' does not exist", s.resolve(path, id)))
	}
	if err != nil {
		httpError(w, err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		httpError(w, err)
		return
	}
	if !st.Mode().IsRegular() {
		httpError(w, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' is not a regular file",
			filepath.Base(path))))
		return
	}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": st.Name()}))
	w.Header().Set("Content-Type", "application/octet-stream")
	if st.Size() > 0 {
		http.ServeContent(w, r, "", st.ModTime(), f) // calls mux.Stream.ReadFrom
		return
	}
	// Files of /proc have no size, and often no end to seek to.
	start := make([]byte, 4096)
	n, err := io.ReadFull(f, start)
	switch {
	case errors.Is(err, io.EOF):
		http.ServeContent(w, r, "", st.ModTime(), bytes.NewReader(nil))
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		httpError(w, err)
	default:
		_, _ = copyFile(w, io.MultiReader(bytes.NewReader(start[:n]), f))
	}
}

// fileBuffer is the size of the buffer for an upload. Each write costs gVisor the same
// whatever its size, and a write of a piece of shared memory comes whole.
const fileBuffer = 512 << 10

var fileBuffers = sync.Pool{New: func() any { b := make([]byte, fileBuffer); return &b }}

// copyFile is io.Copy with a large buffer.
func copyFile(to io.Writer, from io.Reader) (int64, error) {
	buf := fileBuffers.Get().(*[]byte)
	defer fileBuffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buf)
}

// openFile opens without blocking on a FIFO in a file's place.
func (s *Server) openFile(root, path string, id identity) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	if root == "" {
		return os.OpenFile(s.resolve(path, id), flags, 0)
	}
	dir, err := beneath.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.OpenFile(path, flags, 0)
}

// A writtenFile describes an uploaded file as envd does.
type writtenFile struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload serves POST /files?path=…&username=…: multipart form data, one part a
// file, or application/octet-stream. A file appears whole or not at all.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	id, path, err := s.fileRequest(r)
	if err != nil {
		httpError(w, err)
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(r.Body); err != nil {
			httpError(w, err)
			return
		}
	}
	metadata, err := uploadMetadata(r.Header)
	if err != nil {
		httpError(w, err)
		return
	}
	root := r.Header.Get(rootHeader)
	var written []writtenFile
	save := func(path string, body io.Reader) error {
		name, err := s.saveFile(root, path, id, body, metadata)
		written = append(written, writtenFile{name, filepath.Base(name), "file", metadata})
		return err
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		err = eachPart(body, params["boundary"], path, save)
	case path == "":
		err = connect.NewError(connect.CodeInvalidArgument, errors.New("path is missing"))
	default:
		err = save(path, body)
	}
	if err != nil {
		httpError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(written)
}

// saveFile writes a file, owned by the user, beside its place and moves it there.
func (s *Server) saveFile(root, path string, id identity, body io.Reader,
	metadata map[string]string) (string, error) {
	full := path
	if root == "" {
		full = s.resolve(path, id)
		root, path = "/", strings.TrimPrefix(full, "/")
	} else {
		full = filepath.Join(root, path)
	}
	if !filepath.IsLocal(path) || path == "." {
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("not the path of a file below %s: %s", root,
			path))
	}
	top, err := beneath.Open(root)
	if err != nil {
		return "", err
	}
	defer top.Close()
	if err := mkdirIn(top, filepath.Dir(path), id); err != nil {
		return "", err
	}
	old, missing := top.Stat(path)
	if missing == nil && old.IsDir() {
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is a directory: %s", full))
	}
	dir, err := top.OpenRoot(filepath.Dir(path)) // commands may replace the directory at any time
	if err != nil {
		return "", err
	}
	defer dir.Close()
	temp, name := ".berth-"+rand.Text(), filepath.Base(path)
	f, err := dir.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	_, err = copyFile(f, body)
	if err == nil && os.Getuid() == 0 {
		err = f.Chown(id.uid, id.gid)
	}
	if err == nil {
		err = setMetadata(f, metadata)
	}
	st, serr := f.Stat()
	if cerr := f.Close(); err == nil {
		err = errors.Join(serr, cerr)
	}
	if err == nil {
		err = s.placed.rename(dir, st, temp, name, missing == nil)
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return full, err
}

func mkdirIn(root *beneath.Root, path string, id identity) error {
	if path == "." {
		return nil
	}
	if _, err := root.Stat(path); err == nil {
		return nil
	}
	if err := mkdirIn(root, filepath.Dir(path), id); err != nil {
		return err
	}
	if err := root.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if os.Getuid() != 0 {
		return nil
	}
	return root.Lchown(path, id.uid, id.gid)
}

// fileRequest returns the user and the path of a request. The user is in the query or the
// header.
func (s *Server) fileRequest(r *http.Request) (identity, string, error) {
	q := r.URL.Query()
	if name := q.Get("username"); name != "" && name != s.owner.name {
		id, err := lookup(name)
		if err != nil {
			return id, "", connect.NewError(connect.CodeUnauthenticated, err)
		}
		return id, q.Get("path"), nil
	}
	id, err := s.requestUser(r.Header)
	return id, q.Get("path"), err
}

// httpError answers with the status that envd uses for the error.
func httpError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch connect.CodeOf(fileError(err)) {
	case connect.CodeNotFound:
		status = http.StatusNotFound
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists:
		status = http.StatusBadRequest
	case connect.CodePermissionDenied:
		status = http.StatusForbidden
	case connect.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case connect.CodeResourceExhausted:
		status = http.StatusInsufficientStorage
	}
	message := err.Error()
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		message = ce.Message() // without the code, as envd's
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": status, "message": message})
}

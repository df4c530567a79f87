package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"
)

// Bounds on POST /files/compose.
const (
	maxComposeBody = 4 << 20 // bytes
	maxSources     = 10_000
)

// compose serves POST /files/compose: the contents of several files, one after another, become one file, and the
// files are removed. The file appears whole or not at all; if it does not, the sources remain.
func (s *Server) compose(w http.ResponseWriter, r *http.Request) {
	name, err := s.composeFiles(http.MaxBytesReader(w, r.Body, maxComposeBody), r.Header)
	if err != nil {
		httpError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"path": name, "name": filepath.Base(name), "type": "file"})
}

// composeFiles implements compose, and returns the path of the file.
func (s *Server) composeFiles(body io.Reader, header http.Header) (string, error) {
	invalid := func(format string, args ...any) error {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
	}
	var req struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		User        string   `json:"username"`
	}
	if err := json.NewDecoder(body).Decode(&req); err != nil {
		return "", invalid("invalid request body: %w", err)
	}
	switch {
	case len(req.Sources) == 0 || len(req.Sources) > maxSources:
		return "", invalid("source_paths must have 1 to %d paths", maxSources)
	case req.Destination == "":
		return "", invalid("destination is missing")
	}
	id, err := s.requestUser(header)
	if req.User != "" && err == nil {
		if id, err = lookup(req.User); err != nil {
			err = connect.NewError(connect.CodeUnauthenticated, err)
		}
	}
	if err != nil {
		return "", err
	}
	destination := s.resolve(req.Destination, id)
	existing, _ := os.Stat(destination) // a source under another name is the destination, too
	all := &sources{paths: make([]string, len(req.Sources))}
	defer all.close()
	for i, source := range req.Sources {
		if source == "" {
			return "", invalid("source path %d is empty", i)
		}
		path := s.resolve(source, id)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return "", err
		case !info.Mode().IsRegular():
			return "", invalid("source is not a regular file: %s", path)
		case path == destination, existing != nil && os.SameFile(info, existing):
			return "", invalid("source is the destination: %s", path)
		}
		all.paths[i] = path
	}
	name, err := s.saveFile("", req.Destination, id, all, nil)
	if err != nil {
		return "", err
	}
	for _, path := range all.paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.opts.Log.Warn("source of a composed file not removed", "err", err)
		}
	}
	return name, nil
}

// sources reads files one after another. One is open at a time.
type sources struct {
	paths []string
	next  int
	open  *os.File
	rest  io.Reader // of open, up to its size when it was opened
}

func (f *sources) Read(p []byte) (int, error) {
	for {
		if f.open == nil {
			if f.next == len(f.paths) {
				return 0, io.EOF
			}
			if err := f.start(f.paths[f.next]); err != nil {
				return 0, err
			}
			f.next++
		}
		n, err := f.rest.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		f.close()
		if n > 0 {
			return n, nil
		}
	}
}

// start opens a file, without waiting for a writer if a pipe has replaced it.
func (f *sources) start(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("source is not a regular file: %s", path))
	}
	if err != nil {
		file.Close()
		return err
	}
	f.open, f.rest = file, io.LimitReader(file, info.Size())
	return nil
}

func (f *sources) close() {
	if f.open != nil {
		f.open.Close()
		f.open = nil
	}
}

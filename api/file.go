package api

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/files"
)

// purposes are what a file may be uploaded for.
var purposes = []string{"assistants", "batch", "fine-tune", "vision", "user_data", "evals"}

// createFile serves POST /v1/files.
func (s *server) createFile(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	f, err := s.openForm(w, r, "purpose", "expires_after[anchor]", "expires_after[seconds]")
	if err != nil {
		return err
	}
	// OpenAI's clients send the file before its purpose.
	file, err := s.Files.Receive(r.Context(), c.Project, f, func() (files.CreateRequest, error) { return fileRequest(f) })
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, file)
}

// fileRequest reads the fields of a form that has been read to its end.
func fileRequest(f *form) (files.CreateRequest, error) {
	req := files.CreateRequest{Filename: f.filename, Purpose: f.fields["purpose"]}
	if req.Purpose == "" {
		return req, missing("purpose")
	}
	if !slices.Contains(purposes, req.Purpose) {
		return req, wrongValue("purpose", req.Purpose, purposes)
	}
	anchor, anchored := f.fields["expires_after[anchor]"]
	seconds, timed := f.fields["expires_after[seconds]"]
	switch {
	case !anchored && !timed:
		return req, nil
	case !anchored:
		return req, missing("expires_after.anchor")
	case !timed:
		return req, missing("expires_after.seconds")
	case anchor != "created_at":
		return req, wrongValue("expires_after.anchor", anchor, []string{"created_at"})
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return req, wire("invalid_type", "expires_after.seconds", "Invalid type for 'expires_after.seconds': expected an integer, but got '%s' instead.", clip(seconds))
	}
	req.ExpiresAfterSeconds = n
	return req, inRange("expires_after.seconds", "integer", seconds, n, 3600, 2592000)
}

// listFiles serves GET /v1/files.
func (s *server) listFiles(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	purpose := q.text("purpose")
	page := q.page(10_000, 10_000)
	if err := q.end(); err != nil {
		return err
	}
	data, more, err := s.Files.List(r.Context(), c.Project, purpose, page)
	if err != nil {
		return listError(err, page)
	}
	return writeJSON(w, http.StatusOK, listOf(data, more, func(f *berth.File) string { return string(f.ID) }))
}

// getFile serves GET /v1/files/{file}.
func (s *server) getFile(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	file, err := s.Files.Get(r.Context(), c.Project, berth.FileID(r.PathValue("file")))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, file)
}

// getFileContent serves GET /v1/files/{file}/content.
func (s *server) getFileContent(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	content, file, err := s.Files.Open(r.Context(), c.Project, berth.FileID(r.PathValue("file")))
	if err != nil {
		return err
	}
	defer content.Close()
	return s.download(w, r, file.Filename, file.Bytes, content)
}

// deleteFile serves DELETE /v1/files/{file}.
func (s *server) deleteFile(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	id := berth.FileID(r.PathValue("file"))
	if err := s.Files.Delete(r.Context(), c.Project, id); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, deleted(id, "file"))
}

package api

import (
	"net/http"
	"path"

	"github.com/berth-run/berth"
)

// containerFileBody checks the JSON body of POST /v1/containers/{container}/files.
var containerFileBody = object(fields{"file_id": text(1, 256)}, "file_id")

// createContainerFile serves POST /v1/containers/{container}/files: a form with the
// file itself, or a form or JSON that names an uploaded one.
func (s *server) createContainerFile(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var body struct {
		FileID berth.FileID `json:"file_id"`
	}
	if isJSON(r) {
		if err := s.decodeBody(w, r, containerFileBody, &body); err != nil {
			return err
		}
		return s.copyIntoContainer(w, r, c, body.FileID)
	}
	form, err := s.openForm(w, r, "file_id")
	if err != nil {
		return err
	}
	id := berth.FileID(form.fields["file_id"])
	switch {
	case form.file == nil && id == "":
		return missing("file")
	case form.file == nil:
		return s.copyIntoContainer(w, r, c, id)
	case id != "":
		return berth.Invalid("file_id", "Either 'file' or 'file_id' can be given, not both.")
	}
	form.known = nil // nor after the file
	file, err := s.Containers.Files().Put(r.Context(), c.Project, containerID(r), form.filename, form)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, file)
}

func (s *server) copyIntoContainer(w http.ResponseWriter, r *http.Request, c berth.Caller, id berth.FileID) error {
	content, uploaded, err := s.Files.Open(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	defer content.Close()
	file, err := s.Containers.Files().Put(r.Context(), c.Project, containerID(r), uploaded.Filename, content)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, file)
}

// listContainerFiles serves GET /v1/containers/{container}/files.
func (s *server) listContainerFiles(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	page := q.page(20, 100)
	if err := q.end(); err != nil {
		return err
	}
	data, more, err := s.Containers.Files().List(r.Context(), c.Project, containerID(r), page)
	if err != nil {
		return listError(err, page)
	}
	return writeJSON(w, http.StatusOK, listOf(data, more, func(f *berth.ContainerFile) string { return string(f.ID) }))
}

// getContainerFile serves GET /v1/containers/{container}/files/{file}.
func (s *server) getContainerFile(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	file, err := s.Containers.Files().Get(r.Context(), c.Project, containerID(r), containerFileID(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, file)
}

// getContainerFileContent serves GET /v1/containers/{container}/files/{file}/content.
func (s *server) getContainerFileContent(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	content, file, err := s.Containers.Files().Open(r.Context(), c.Project, containerID(r), containerFileID(r))
	if err != nil {
		return err
	}
	defer content.Close()
	return s.download(w, r, path.Base(file.Path), file.Bytes, content)
}

// deleteContainerFile serves DELETE /v1/containers/{container}/files/{file}.
func (s *server) deleteContainerFile(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	if err := s.Containers.Files().Delete(r.Context(), c.Project, containerID(r), containerFileID(r)); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, deleted(containerFileID(r), "container.file.deleted"))
}

// containerFileID returns the file that the path names.
func containerFileID(r *http.Request) berth.CFileID { return berth.CFileID(r.PathValue("file")) }

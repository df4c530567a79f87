package api

import (
	"net/http"
	"path"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

// containerFileBody checks the JSON body of POST /v1/containers/{container}/files.
var containerFileBody = rule.Object(rule.Fields{"file_id": rule.Text(1, 256)}, "file_id")

// createFile serves POST /v1/containers/{container}/files. The body is a form with the
// file itself, or a form or JSON object with the id of an uploaded file.
func (h *containers) createFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		FileID berth.FileID `json:"file_id"`
	}
	if exchange.IsJSON(r) {
		if err := x.Decode(r, containerFileBody, &body); err != nil {
			return err
		}
		return h.copyFile(x, r, c, body.FileID)
	}
	form, err := x.Form(r, "file_id")
	if err != nil {
		return err
	}
	id := berth.FileID(form.Fields["file_id"])
	switch {
	case !form.HasFile() && id == "":
		return rule.Missing("file")
	case !form.HasFile():
		return h.copyFile(x, r, c, id)
	case id != "":
		return berth.Invalid("file_id", "Provide either 'file' or 'file_id', not both.")
	}
	form.Known = nil // a field after the file is an error
	file, err := h.service.Files().Put(r.Context(), c.Project, containerID(r), form.Filename, form)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, file)
}

func (h *containers) copyFile(x *exchange.Exchange, r *http.Request, c berth.Caller, id berth.FileID) error {
	content, uploaded, err := h.files.Open(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	defer content.Close()
	file, err := h.service.Files().Put(r.Context(), c.Project, containerID(r), uploaded.Filename, content)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, file)
}

// listFiles serves GET /v1/containers/{container}/files.
func (h *containers) listFiles(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := h.service.Files().List(r.Context(), c.Project, containerID(r), page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(f *berth.ContainerFile) string {
		return string(f.ID)
	}))
}

// getFile serves GET /v1/containers/{container}/files/{file}.
func (h *containers) getFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	file, err := h.service.Files().Get(r.Context(), c.Project, containerID(r), containerFileID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, file)
}

// fileContent serves GET /v1/containers/{container}/files/{file}/content.
func (h *containers) fileContent(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	content, file, err := h.service.Files().Open(r.Context(), c.Project, containerID(r), containerFileID(r))
	if err != nil {
		return err
	}
	defer content.Close()
	return x.Download(r, path.Base(file.Path), file.Bytes, content)
}

// deleteFile serves DELETE /v1/containers/{container}/files/{file}.
func (h *containers) deleteFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := h.service.Files().Delete(r.Context(), c.Project, containerID(r), containerFileID(r)); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(containerFileID(r), "container.file.deleted"))
}

// containerFileID returns the file id of the request's path.
func containerFileID(r *http.Request) berth.CFileID { return berth.CFileID(r.PathValue("file")) }

package messages

import (
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/rule"
)

const filePath = "/v1/files"

// storedFiles serves uploaded files, and those of containers.
type storedFiles struct {
	files   *files.Service
	outputs Outputs // may be nil
}

// routes returns the routes of files for Anthropic's clients. The files are those of OpenAI's API.
func (h *storedFiles) routes() []exchange.Route {
	return []exchange.Route{
		versioned("POST "+filePath, h.createFile),
		versioned("GET "+filePath, h.listFiles),
		versioned("GET "+filePath+"/{file}", h.getFile),
		versioned("DELETE "+filePath+"/{file}", h.deleteFile),
		versioned("GET "+filePath+"/{file}/content", h.fileContent),
	}
}

// filePurpose is the purpose of uploaded files, for which Anthropic's API has no field.
const filePurpose = "user_data"

// A fileInfo is a file in Anthropic's form.
type fileInfo struct {
	ID           berth.FileID `json:"id"`
	Type         string       `json:"type"` // "file"
	Filename     string       `json:"filename"`
	MimeType     string       `json:"mime_type"`
	SizeBytes    int64        `json:"size_bytes"`
	CreatedAt    string       `json:"created_at"`
	ExpiresAt    *string      `json:"expires_at"`
	Downloadable bool         `json:"downloadable"`
}

func newFileInfo(f *berth.File) fileInfo {
	return fileInfo{ID: f.ID, Type: "file", Filename: f.Filename, MimeType: mimeType(f.Filename), SizeBytes: f.Bytes,
		CreatedAt: date(f.CreatedAt), ExpiresAt: dateOrNull(f.ExpiresAt), Downloadable: true}
}

// mimeTypes are the types of files that messages and tools use, whatever the machine's table says.
var mimeTypes = map[string]string{".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv",
	".json": "application/json", ".jsonl": "application/jsonl", ".pdf": "application/pdf", ".png": "image/png",
	".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".zip": "application/zip",
	".py": "text/x-python", ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation"}

// mimeType returns the media type of a file by its name.
func mimeType(name string) string {
	ext := strings.ToLower(path.Ext(name))
	kind := mimeTypes[ext]
	if kind == "" {
		kind, _, _ = strings.Cut(mime.TypeByExtension(ext), ";")
	}
	if kind == "" {
		return "application/octet-stream"
	}
	return kind
}

// createFile serves POST /v1/files.
func (h *storedFiles) createFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := x.Form(r, "expires_in_seconds", "purpose")
	if err != nil {
		return err
	}
	file, err := h.files.Receive(r.Context(), c.Project, f, func() (files.CreateRequest, error) {
		req := files.CreateRequest{Filename: path.Base(f.Filename), Purpose: filePurpose}
		if f.Filename == "" {
			req.Filename = "unnamed"
		}
		text, sent := f.Fields["expires_in_seconds"]
		if !sent {
			return req, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return req, berth.Invalid("expires_in_seconds", "expected an integer, but got '%s'", rule.Clip(text))
		}
		req.ExpiresAfterSeconds = n
		return req, rule.InRange("expires_in_seconds", "integer", text, n, 3600, 7776000)
	})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, newFileInfo(file))
}

// listFiles serves GET /v1/files.
func (h *storedFiles) listFiles(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := readPage(q, 20)
	scope := q.Text("scope_id")
	ids := append(q.Texts("ids"), q.Texts("ids[]")...)
	if err := q.End(); err != nil {
		return err
	}
	if scope != "" || len(ids) > 0 {
		return h.namedFiles(x, r, c, scope, ids)
	}
	list, more, err := h.files.List(r.Context(), c.Project, "", page.Page)
	if err != nil {
		return page.error(err)
	}
	infos := inOrder(page, list, newFileInfo)
	return x.JSON(http.StatusOK, newCursorList(infos, more, func(f fileInfo) string { return string(f.ID) }))
}

// maxNamed bounds the files that a client names in a list.
const maxNamed = 100

// namedFiles answers with the files of a list of ids. No file of this server has a scope.
func (h *storedFiles) namedFiles(x *exchange.Exchange, r *http.Request, c berth.Caller, scope string,
	ids []string) error {
	if len(ids) > maxNamed {
		return berth.Invalid("ids", "at most %d ids are allowed", maxNamed)
	}
	var infos []fileInfo
	for _, id := range ids {
		f, err := h.files.Get(r.Context(), c.Project, berth.FileID(id))
		if err == nil && scope == "" {
			infos = append(infos, newFileInfo(f))
		} else if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return err
		}
	}
	return x.JSON(http.StatusOK, newCursorList(infos, false, func(f fileInfo) string { return string(f.ID) }))
}

func fileID(r *http.Request) berth.FileID { return berth.FileID(r.PathValue("file")) }

// getFile serves GET /v1/files/{file}.
func (h *storedFiles) getFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if at, ok := h.output(r); ok {
		f, err := h.outputs.Get(r.Context(), c.Project, at.container, at.file)
		if err != nil {
			return at.error(err)
		}
		return x.JSON(http.StatusOK, newOutputInfo(f))
	}
	f, err := h.files.Get(r.Context(), c.Project, fileID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, newFileInfo(f))
}

// deleteFile serves DELETE /v1/files/{file}.
func (h *storedFiles) deleteFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := fileID(r)
	var err error
	if at, ok := h.output(r); ok {
		err = at.error(h.outputs.Delete(r.Context(), c.Project, at.container, at.file))
	} else {
		err = h.files.Delete(r.Context(), c.Project, id)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, deletion{string(id), "file_deleted"})
}

// fileContent serves GET /v1/files/{file}/content.
func (h *storedFiles) fileContent(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if at, ok := h.output(r); ok {
		content, f, err := h.outputs.Open(r.Context(), c.Project, at.container, at.file)
		if err != nil {
			return at.error(err)
		}
		defer content.Close()
		return x.DownloadAs(r, mimeType(f.Path), path.Base(f.Path), f.Bytes, content)
	}
	content, f, err := h.files.Open(r.Context(), c.Project, fileID(r))
	if err != nil {
		return err
	}
	defer content.Close()
	return x.DownloadAs(r, mimeType(f.Filename), f.Filename, f.Bytes, content)
}

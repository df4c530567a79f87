package openterminal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// view serves GET /files/view: a file of any type as it is.
func (v files) view() error {
	name, err := v.queryPath(false)
	if err != nil {
		return err
	}
	return v.show(name)
}

// serveFile serves GET /files/serve/…: view by the path of the URL, in which pages have relative links.
func (v files) serveFile() error { return v.show(v.path("/" + v.r.PathValue("path"))) }

func (v files) show(name string) error {
	at, err := v.examine(name)
	switch {
	case err != nil:
		return err
	case !at.Regular:
		return refused(http.StatusNotFound, "File not found")
	}
	return v.sendFile(name, at)
}

// sendFile answers with a file. A browser gives a page of it an origin of its own, so that its scripts reach nothing of
// this server.
func (v files) sendFile(name string, f file) error {
	body, size, err := v.client.ReadFile(v.r.Context(), "", name, "")
	if errors.Is(err, fs.ErrNotExist) {
		return refused(http.StatusNotFound, "File not found")
	}
	if err != nil {
		return v.guestError(err)
	}
	defer body.Close()
	h := v.x.Header()
	h.Set("Content-Type", f.Type)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox allow-scripts")
	h.Set("Cache-Control", "no-store")
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	out := v.x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	v.x.WriteHeader(http.StatusOK)
	if _, err := io.Copy(out, body); err != nil {
		v.x.Abort(err)
	}
	return nil
}

// upload serves POST /files/upload: a form with a file.
func (v files) upload() error {
	q := parametersOf(v.r)
	directory := q.required("directory")
	if err := q.end(); err != nil {
		return err
	}
	form, err := v.x.Form(v.r)
	if berth.ErrorCode(err) == berth.CodeInvalid || err == nil && !form.HasFile() { // no form, or without a file
		return faults{{"missing", []any{"body", "file"}, "Field required", nil}}
	}
	if err != nil {
		return err
	}
	base := path.Base(path.Clean("/" + form.Filename))
	if base == "/" || base == "." {
		base = "upload"
	}
	name := path.Join(v.resolve(directory, false), base)
	count := &counter{in: form}
	switch err := v.client.WriteFile(v.r.Context(), "", name, "", count); {
	case err == nil:
	case berth.ErrorCode(err) != berth.CodeInternal:
		return err
	case ended(v.r.Context()) != nil || errors.Is(err, fs.ErrNotExist):
		return refused(http.StatusBadRequest, "The file cannot be written: "+name)
	default:
		if at, look := v.examine(name); look == nil && at.Directory {
			return refused(http.StatusBadRequest, "Is a directory: "+name)
		}
		return v.guestError(err)
	}
	return v.x.JSON(http.StatusOK, map[string]any{"path": name, "size": count.n})
}

// A counter counts the bytes that are read.
type counter struct {
	in io.Reader
	n  int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

// archive serves POST /files/archive: files and directories as a ZIP file.
func (v files) archive() error {
	var body struct {
		Paths []string `json:"paths"`
	}
	if err := v.decode(&body, "paths"); err != nil {
		return err
	}
	if len(body.Paths) == 0 {
		return refused(http.StatusBadRequest, "No paths provided")
	}
	for i, p := range body.Paths {
		body.Paths[i] = v.resolve(p, false)
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), archiveTime)
	defer cancel()
	out := v.x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	var head []byte
	err := v.run(ctx, task{"do": "archive", "paths": body.Paths}, func(data []byte) error {
		if !v.x.Started() {
			head = append(head, data...)
			line, rest, complete := bytes.Cut(head, []byte("\n"))
			if !complete && len(head) < maxHead {
				return nil
			}
			if err := v.startArchive(line); err != nil {
				return err
			}
			data = rest
		}
		_, err := out.Write(data)
		return err
	})
	if err == nil && !v.x.Started() {
		_, err = parse(head)
	}
	if err != nil && v.x.Started() {
		v.x.Abort(err)
		return nil
	}
	return err
}

// maxHead bounds the line with which the helper begins an archive.
const maxHead = 64 << 10

// startArchive reads the line with which the helper begins an archive, and starts the answer.
func (v files) startArchive(line []byte) error {
	raw, err := parse(line)
	if err != nil {
		return err
	}
	var begun struct{ Name string }
	if json.Unmarshal(raw, &begun) != nil || begun.Name == "" {
		begun.Name = "archive"
	}
	h := v.x.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Disposition", exchange.Attachment(begun.Name+".zip"))
	h.Set("X-Content-Type-Options", "nosniff")
	v.x.WriteHeader(http.StatusOK)
	return nil
}

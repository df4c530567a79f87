package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/rule"
)

// storedFiles serves uploaded files.
type storedFiles struct {
	files *files.Service
	users *endUsers
}

// create serves POST /v1/files.
func (h *storedFiles) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := x.Form(r, "purpose", "expires_after[anchor]", "expires_after[seconds]")
	if err != nil {
		return err
	}
	// OpenAI's clients send the file before the purpose field, so the request is read last.
	file, err := h.files.Receive(r.Context(), c.Project, f, func() (files.CreateRequest, error) {
		return fileRequest(f)
	})
	if err != nil {
		return err
	}
	if err := h.users.own(r.Context(), c, string(file.ID), func(ctx context.Context) error {
		return h.files.Delete(ctx, c.Project, file.ID)
	}); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, file)
}

// fileRequest reads the fields of a form. The form must have been read to its end.
func fileRequest(f *exchange.Form) (files.CreateRequest, error) {
	req := files.CreateRequest{Filename: f.Filename, Purpose: f.Fields["purpose"]}
	if req.Purpose == "" {
		return req, rule.Missing("purpose")
	}
	if !slices.Contains(files.Purposes, req.Purpose) {
		return req, rule.WrongValue("purpose", req.Purpose, files.Purposes)
	}
	anchor, anchored := f.Fields["expires_after[anchor]"]
	seconds, timed := f.Fields["expires_after[seconds]"]
	switch {
	case !anchored && !timed:
		return req, nil
	case !anchored:
		return req, rule.Missing("expires_after.anchor")
	case !timed:
		return req, rule.Missing("expires_after.seconds")
	case anchor != "created_at":
		return req, rule.WrongValue("expires_after.anchor", anchor, []string{"created_at"})
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return req, rule.Errorf("invalid_type", "expires_after.seconds",
			"Invalid type for 'expires_after.seconds': expected an integer, but got '%s' instead.", rule.Clip(seconds))
	}
	req.ExpiresAfterSeconds = n
	return req, rule.InRange("expires_after.seconds", "integer", seconds, n, 3600, 2592000)
}

// list serves GET /v1/files.
func (h *storedFiles) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	purpose := q.Text("purpose")
	page := q.Page(10_000, 10_000)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := h.files.List(r.Context(), c.Project, purpose, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(f *berth.File) string { return string(f.ID) }))
}

// get serves GET /v1/files/{file}.
func (h *storedFiles) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.files.Get, berth.FileID(r.PathValue("file")))
}

// content serves GET /v1/files/{file}/content.
func (h *storedFiles) content(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	content, file, err := h.files.Open(r.Context(), c.Project, berth.FileID(r.PathValue("file")))
	if err != nil {
		return err
	}
	defer content.Close()
	return x.Download(r, file.Filename, file.Bytes, content)
}

// delete serves DELETE /v1/files/{file}.
func (h *storedFiles) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.files.Delete, berth.FileID(r.PathValue("file")), "file")
}

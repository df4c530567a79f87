package api

import (
	"context"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/files/uploads"
	"github.com/berth-run/berth/internal/rule"
)

// largeFiles serves uploads of large files in parts.
type largeFiles struct {
	service *uploads.Service
	files   *files.Service
	users   *endUsers
}

// maxUploadParts is the most parts that one request may name.
const maxUploadParts = 10_000

var (
	fileExpiry = rule.Object(rule.Fields{"anchor": rule.OneOf("created_at"), "seconds": rule.Integer(3600, 2592000)},
		"anchor", "seconds")
	uploadBody = rule.Object(rule.Fields{"filename": rule.Text(1, 255), "purpose": rule.OneOf(files.Purposes...),
		"bytes":     rule.Integer(1, uploads.MaxBytes),
		"mime_type": rule.Text(1, 255), "expires_after": fileExpiry}, "filename", "purpose", "bytes", "mime_type")
	uploadParts = rule.Object(rule.Fields{"part_ids": rule.AtLeastOne(rule.List(rule.Text(1, 256), maxUploadParts)),
		"md5": rule.Matching("^[0-9a-fA-F]{32}$", 32)}, "part_ids")
)

// expiresAfter is the expiry of a file in the body of a request.
type expiresAfter struct {
	Seconds int64 `json:"seconds"`
}

// create serves POST /v1/uploads.
func (h *largeFiles) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Filename     string       `json:"filename"`
		Purpose      string       `json:"purpose"`
		Bytes        int64        `json:"bytes"`
		ExpiresAfter expiresAfter `json:"expires_after"`
	}
	if err := x.Decode(r, uploadBody, &body); err != nil {
		return err
	}
	u, err := h.service.Create(r.Context(), c.Project, uploads.CreateRequest{Filename: body.Filename,
		Purpose: body.Purpose, Bytes: body.Bytes,
		ExpiresAfterSeconds: body.ExpiresAfter.Seconds})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, u)
}

// addPart serves POST /v1/uploads/{upload}/parts.
func (h *largeFiles) addPart(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := x.FormOf(r, "data")
	if err != nil {
		return err
	}
	part, err := h.service.AddPart(r.Context(), c.Project, uploadID(r), f)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, part)
}

// complete serves POST /v1/uploads/{upload}/complete.
func (h *largeFiles) complete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		PartIDs []berth.PartID `json:"part_ids"`
		MD5     string         `json:"md5"`
	}
	if err := x.Decode(r, uploadParts, &body); err != nil {
		return err
	}
	u, err := h.service.Complete(r.Context(), c.Project, uploadID(r), body.PartIDs, body.MD5)
	if err != nil {
		return err
	}
	if u.File != nil {
		if err := h.users.own(r.Context(), c, string(u.File.ID), func(ctx context.Context) error {
			return h.files.Delete(ctx, c.Project, u.File.ID)
		}); err != nil {
			return err
		}
	}
	return x.JSON(http.StatusOK, u)
}

// cancel serves POST /v1/uploads/{upload}/cancel.
func (h *largeFiles) cancel(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	u, err := h.service.Cancel(r.Context(), c.Project, uploadID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, u)
}

func uploadID(r *http.Request) berth.UploadID { return berth.UploadID(r.PathValue("upload")) }

package api

import (
	"math"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/rule"
)

// volumes serves volumes. Its service is nil if the driver does not support them.
type volumes struct{ service *volume.Service }

// errNoVolumes is the error of all routes if the driver does not support volumes.
var errNoVolumes = berth.Errorf(berth.CodeUnavailable, "This server cannot store volumes.")

// volumeBody checks the body of POST /v1/volumes.
var volumeBody = rule.Object(rule.Fields{
	"name":       rule.Text(1, 63),
	"max_bytes":  rule.Integer(volume.MinBytes, volume.MaxBytes),
	"expires_at": rule.Integer(1, math.MaxInt32*64),
}, "name")

type volumeRequest struct {
	Name      string `json:"name"`       // [a-z0-9][a-z0-9_-]{0,62}
	MaxBytes  int64  `json:"max_bytes"`  // its size
	ExpiresAt *int64 `json:"expires_at"` // Unix seconds; null means never
}

// create serves POST /v1/volumes.
func (h *volumes) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body volumeRequest
	if err := x.Decode(r, volumeBody, &body); err != nil {
		return err
	}
	if h.service == nil {
		return errNoVolumes
	}
	v, err := h.service.Create(r.Context(), c, volume.CreateRequest(body))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, v)
}

// list serves GET /v1/volumes.
func (h *volumes) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	if h.service == nil { // such a server has none
		return x.JSON(http.StatusOK, exchange.ListOf([]*berth.Volume{}, false, nil))
	}
	data, more, err := h.service.List(r.Context(), c.Project, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(v *berth.Volume) string { return string(v.ID) }))
}

// get serves GET /v1/volumes/{volume}.
func (h *volumes) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoVolumes
	}
	return exchange.Get(x, r, c, h.service.Get, volumeID(r))
}

// delete serves DELETE /v1/volumes/{volume}.
func (h *volumes) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoVolumes
	}
	if err := h.service.Delete(r.Context(), c, volumeID(r)); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(volumeID(r), "volume.deleted"))
}

// volumeID returns the volume id of the request's path.
func volumeID(r *http.Request) berth.VolumeID { return berth.VolumeID(r.PathValue("volume")) }

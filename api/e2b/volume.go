package e2b

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/rule"
)

// errNoVolumes is the error if the driver does not support volumes.
var errNoVolumes = berth.Errorf(berth.CodeUnavailable, "This server cannot store volumes.")

// mountsBody checks volumeMounts.
var mountsBody = rule.List(rule.Object(rule.Fields{"name": rule.Text(1, 63), "path": rule.Text(1, 256)}, "name",
	"path"), 16)

// A mount is a volume of a sandbox.
type mount struct {
	Name string `json:"name"` // of the volume
	Path string `json:"path"` // in the sandbox, absolute
}

// mountsOf returns the volumes of a request as those of a container.
func mountsOf(mounts []mount) []berth.VolumeMount {
	var out []berth.VolumeMount
	for _, m := range mounts {
		out = append(out, berth.VolumeMount{Name: m.Name, Path: m.Path})
	}
	return out
}

// mountsIn returns the volumes of a container as those of a sandbox.
func mountsIn(volumes []berth.VolumeMount) []mount {
	var out []mount
	for _, v := range volumes {
		out = append(out, mount{v.Name, v.Path})
	}
	return out
}

// A volumeInfo describes a volume.
type volumeInfo struct {
	ID    berth.VolumeID `json:"volumeID"`
	Name  string         `json:"name"`
	Token string         `json:"token,omitempty"` // for its content; lists have none
}

// volumes serves volumes and their content.
type volumes struct {
	service *volume.Service // nil: the driver does not support volumes
	tokens  *tokens
}

// create serves POST /volumes.
func (h *volumes) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"name": rule.Text(1, 63)}, "name"), &body); err != nil {
		return err
	}
	if h.service == nil {
		return errNoVolumes
	}
	v, err := h.service.Create(r.Context(), c, volume.CreateRequest{Name: body.Name})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusCreated, volumeInfo{v.ID, v.Name, h.token(c, v.ID)})
}

// list serves GET /volumes: all volumes of the project.
func (h *volumes) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoVolumes
	}
	out := []volumeInfo{}
	page := exchange.Page{Limit: 100}
	for more := true; more; {
		var volumes []*berth.Volume
		var err error
		if volumes, more, err = h.service.List(r.Context(), c.Project, page); err != nil {
			return err
		}
		for _, v := range volumes {
			out = append(out, volumeInfo{ID: v.ID, Name: v.Name})
			page.After = string(v.ID)
		}
	}
	return x.JSON(http.StatusOK, out)
}

// get serves GET /volumes/{volume}.
func (h *volumes) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoVolumes
	}
	v, err := h.service.Get(r.Context(), c.Project, berth.VolumeID(r.PathValue("volume")))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, volumeInfo{v.ID, v.Name, h.token(c, v.ID)})
}

// delete serves DELETE /volumes/{volume}.
func (h *volumes) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.service == nil {
		return errNoVolumes
	}
	if err := h.service.Delete(r.Context(), c, berth.VolumeID(r.PathValue("volume"))); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

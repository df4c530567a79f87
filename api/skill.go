package api

import (
	"io"
	"net/http"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/skills"
)

// storedSkills serves skills and their versions.
type storedSkills struct{ service *skills.Service }

var skillChange = rule.Object(rule.Fields{"default_version": rule.Text(1, 64)}, "default_version")

// create serves POST /v1/skills.
func (h *storedSkills) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := x.FormFiles(r, "files")
	if err != nil {
		return err
	}
	skill, err := h.service.Create(r.Context(), c.Project, f)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, skill)
}

// list serves GET /v1/skills.
func (h *storedSkills) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.service.List, func(s *berth.Skill) string { return string(s.ID) })
}

// get serves GET /v1/skills/{skill}.
func (h *storedSkills) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, skillID(r))
}

// update serves POST /v1/skills/{skill}: it sets the default version.
func (h *storedSkills) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		DefaultVersion string `json:"default_version"`
	}
	if err := x.Decode(r, skillChange, &body); err != nil {
		return err
	}
	skill, err := h.service.SetDefault(r.Context(), c.Project, skillID(r), body.DefaultVersion)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, skill)
}

// delete serves DELETE /v1/skills/{skill}.
func (h *storedSkills) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.service.Delete, skillID(r), "skill.deleted")
}

// createVersion serves POST /v1/skills/{skill}/versions.
func (h *storedSkills) createVersion(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := x.FormFiles(r, "files", "default")
	if err != nil {
		return err
	}
	version, err := h.service.CreateVersion(r.Context(), c.Project, skillID(r), f, func() (bool, error) {
		text, sent := f.Fields["default"]
		if !sent {
			return false, nil
		}
		makeDefault, err := strconv.ParseBool(text)
		if err != nil {
			return false, rule.Errorf("invalid_type", "default",
				"Invalid type for 'default': expected a boolean, but got '%s' instead.", rule.Clip(text))
		}
		return makeDefault, nil
	})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, version)
}

// listVersions serves GET /v1/skills/{skill}/versions.
func (h *storedSkills) listVersions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	all, err := h.service.Versions(r.Context(), c.Project, skillID(r))
	if err != nil {
		return err
	}
	id := func(v *berth.SkillVersion) string { return string(v.ID) }
	data, more, err := exchange.PageOf(all, page, id)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, id))
}

// getVersion serves GET /v1/skills/{skill}/versions/{version}.
func (h *storedSkills) getVersion(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	version, err := h.service.Version(r.Context(), c.Project, skillID(r), r.PathValue("version"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, version)
}

// deleteVersion serves DELETE /v1/skills/{skill}/versions/{version}.
func (h *storedSkills) deleteVersion(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	version, err := h.service.DeleteVersion(r.Context(), c.Project, skillID(r), r.PathValue("version"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, struct {
		ID      berth.SkillVersionID `json:"id"`
		Object  string               `json:"object"`
		Deleted bool                 `json:"deleted"`
		Version string               `json:"version"`
	}{version.ID, "skill.version.deleted", true, version.Version})
}

// content serves GET /v1/skills/{skill}/content and /v1/skills/{skill}/versions/{version}/content:
// a zip archive.
func (h *storedSkills) content(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	content, version, err := h.service.Open(r.Context(), c.Project, skillID(r), r.PathValue("version"))
	if err != nil {
		return err
	}
	defer content.Close()
	size, err := content.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = content.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return x.DownloadAs(r, "application/zip", version.Name+".zip", size, content)
}

// skillID returns the skill id of the request's path.
func skillID(r *http.Request) berth.SkillID { return berth.SkillID(r.PathValue("skill")) }

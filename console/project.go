package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

// A projectPage has the forms of the page of a project that change the project itself. keysPage shows it.
type projectPage struct{ berth.Project }

// read reads the project of the visit, and returns the API's path of it.
func (p *projectPage) read(v *visit) (path string, err error) {
	path = "/v1/organization/projects/" + url.PathEscape(v.r.PathValue("project"))
	return path, v.get(path, &p.Project)
}

// limit serves POST /console/projects/{project}/limit: it sets what the project may spend in a month.
func (p *projectPage) limit(v *visit) error {
	path, err := p.read(v)
	if err != nil {
		return err
	}
	p.Limits.CostPerMonth = nil
	if text := strings.TrimSpace(v.form.fields.Get("limit")); text != "" {
		amount, err := berth.ParseAmount(text)
		if err != nil {
			return &failure{Status: http.StatusBadRequest,
				Message: "The limit is not a number. Go back and correct it."}
		}
		p.Limits.CostPerMonth = &amount
	}
	if err := v.post(path, map[string]any{"limits": p.Limits}, &struct{}{}); err != nil {
		return err
	}
	return v.redirect("/console/projects/" + url.PathEscape(string(p.ID)))
}

// archive serves POST /console/projects/{project}/archive. The form repeats the name of the project, because nothing
// brings its data back.
func (p *projectPage) archive(v *visit) error {
	path, err := p.read(v)
	if err != nil {
		return err
	}
	if name := v.form.fields.Get("confirm"); name != p.Name && name != string(p.ID) {
		return &failure{Status: http.StatusBadRequest, Message: "That is not the name of the project. Nothing was archived."}
	}
	if err := v.post(path+"/archive", struct{}{}, &struct{}{}); err != nil {
		return err
	}
	return v.redirect("/console/projects")
}

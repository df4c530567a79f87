package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

// A projectsPage is the list of projects, for admin keys.
type projectsPage struct {
	Projects []berth.Project
	Next     string // path of the next page; "" at the end
	Form     formToken
}

// show serves GET /console/projects.
func (p *projectsPage) show(v *visit) error {
	query := url.Values{"limit": {"100"}, "include_archived": {"true"}}
	if after := v.r.URL.Query().Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[berth.Project]
	if err := v.get("/v1/organization/projects?"+query.Encode(), &found); err != nil {
		return err
	}
	*p = projectsPage{Projects: found.Data, Form: v.formToken()}
	if found.HasMore {
		p.Next = "/console/projects?" + url.Values{"after": {found.LastID}}.Encode()
	}
	return v.show(http.StatusOK, "projects", "Projects", p)
}

// create serves POST /console/projects.
func (*projectsPage) create(v *visit) error {
	var created berth.Project
	if err := v.post("/v1/organization/projects", map[string]any{"name": strings.TrimSpace(v.form.fields.Get("name"))},
		&created); err != nil {
		return err
	}
	return v.redirect("/console/projects/" + url.PathEscape(string(created.ID)))
}

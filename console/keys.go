package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/connect"
)

// A keysPage is the page of the keys of a project, or of the admin keys.
type keysPage struct {
	Project *berth.Project // nil for admin keys
	Spent   *spending      // of the project this month; nil if it is not known
	Keys    []keyRow
	More    bool
	Path    string // of the page
	Form    string
	Created *keyRow          // a key that was created just now, with its value
	Clients []connect.Client // the lines of clients with that key; nil for admin keys
}

// A keyRow is a key in the API's answers.
type keyRow struct {
	ID            string
	Name          string
	RedactedValue string `json:"redacted_value"`
	CreatedAt     int64  `json:"created_at"`
	ExpiresAt     *int64 `json:"expires_at"`
	Value         string // only in the answer to its creation
	Limits        struct {
		CostPerMonth *berth.Amount `json:"cost_per_month"`
	}
}

// End returns the end of the key, which tells it from others at sight.
func (k keyRow) End() string { return "…" + k.RedactedValue[max(0, len(k.RedactedValue)-4):] }

// read reads the keys that the path of the visit names, and returns the API's path of them.
func (p *keysPage) read(v *visit) (path string, err error) {
	*p = keysPage{Path: "/console/admin-keys", Form: v.formToken()}
	path = "/v1/organization/admin_api_keys"
	if id := v.r.PathValue("project"); id != "" {
		of := "/v1/organization/projects/" + url.PathEscape(id)
		p.Path, path = "/console/projects/"+url.PathEscape(id), of+"/api_keys"
		p.Project = &berth.Project{}
		if err := v.get(of, p.Project); err != nil {
			return path, err
		}
	}
	if p.Project != nil {
		var spent list[spending]
		query := url.Values{"project_ids": {string(p.Project.ID)}, "limit": {"1"}}
		if err := v.get("/v1/organization/spend?"+query.Encode(), &spent); err != nil && !refused(err) {
			return path, err
		}
		if len(spent.Data) > 0 && spent.Data[0].APIKeyID == nil {
			p.Spent = &spent.Data[0]
		}
	}
	var found list[keyRow]
	err = v.get(path+"?limit=100", &found)
	p.Keys, p.More = found.Data, found.HasMore
	return path, err
}

// show serves GET /console/projects/{project} and GET /console/admin-keys.
func (p *keysPage) show(v *visit) error {
	if _, err := p.read(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "keys", p.Title(), p)
}

// Title returns the heading of the page.
func (p keysPage) Title() string {
	switch {
	case p.Project == nil:
		return "Admin keys"
	case p.Project.Name != "":
		return p.Project.Name
	}
	return string(p.Project.ID)
}

// create serves POST /console/projects/{project} and POST /console/admin-keys. The answer is the only
// page that shows the key.
func (p *keysPage) create(v *visit) error {
	path, err := p.read(v)
	if err != nil {
		return err
	}
	req := map[string]any{"name": strings.TrimSpace(v.form.fields.Get("name"))}
	if days, err := strconv.Atoi(v.form.fields.Get("days")); err == nil && days > 0 {
		req["expires_in_seconds"] = days * 24 * 3600
	}
	if limit := strings.TrimSpace(v.form.fields.Get("limit")); limit != "" {
		amount, err := berth.ParseAmount(limit)
		if err != nil {
			return &failure{Status: http.StatusBadRequest,
				Message: "The limit is not a number. Go back and correct it."}
		}
		req["limits"] = map[string]any{"cost_per_month": amount}
	}
	var created keyRow
	if err := v.post(path, req, &created); err != nil {
		return err
	}
	if _, err := p.read(v); err != nil {
		return err
	}
	p.Created = &created
	if p.Project != nil {
		p.Clients = clientsOf(v, created.Value)
	}
	return v.show(http.StatusOK, "keys", p.Title(), p)
}

// delete serves POST /console/projects/{project}/delete-key and POST /console/admin-keys/delete-key.
func (p *keysPage) delete(v *visit) error {
	path, err := p.read(v)
	if err != nil {
		return err
	}
	if err := v.delete(path + "/" + url.PathEscape(v.form.fields.Get("key"))); err != nil {
		return err
	}
	return v.redirect(p.Path)
}

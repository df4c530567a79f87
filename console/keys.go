package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// A keysPage is the data of the page of the keys of a project, or of the admin keys.
type keysPage struct {
	Project *berth.Project // nil for admin keys
	Keys    []keyRow
	More    bool
	Path    string // of the page
	Form    string
	Created *keyRow // a key that was created just now, with its value
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

// readKeys returns the page of the keys that the path of the visit names, and the API's path of
// them.
func (v *visit) readKeys() (p keysPage, path string, err error) {
	p = keysPage{Path: "/console/admin-keys", Form: v.formToken()}
	path = "/v1/organization/admin_api_keys"
	if id := v.r.PathValue("project"); id != "" {
		of := "/v1/organization/projects/" + url.PathEscape(id)
		p.Path, path = "/console/projects/"+url.PathEscape(id), of+"/api_keys"
		p.Project = &berth.Project{}
		if err := v.get(of, p.Project); err != nil {
			return p, path, err
		}
	}
	var found list[keyRow]
	err = v.get(path+"?limit=100", &found)
	p.Keys, p.More = found.Data, found.HasMore
	return p, path, err
}

// showKeys serves GET /console/projects/{project} and GET /console/admin-keys.
func (v *visit) showKeys() error {
	p, _, err := v.readKeys()
	if err != nil {
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

// createKey serves POST /console/projects/{project} and POST /console/admin-keys. The answer is the only
// page that shows the key.
func (v *visit) createKey() error {
	_, path, err := v.readKeys()
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
			return &failure{Status: http.StatusBadRequest, Message: "The limit is not a number. Go back and correct it."}
		}
		req["limits"] = map[string]any{"cost_per_month": amount}
	}
	var created keyRow
	if err := v.post(path, req, &created); err != nil {
		return err
	}
	p, _, err := v.readKeys()
	if err != nil {
		return err
	}
	p.Created = &created
	return v.show(http.StatusOK, "keys", p.Title(), p)
}

// deleteKey serves POST /console/projects/{project}/delete-key and POST /console/admin-keys/delete-key.
func (v *visit) deleteKey() error {
	p, path, err := v.readKeys()
	if err != nil {
		return err
	}
	if err := v.delete(path + "/" + url.PathEscape(v.form.fields.Get("key"))); err != nil {
		return err
	}
	return v.redirect(p.Path)
}

package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
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
	Form    formToken
	Persons bool             // people sign in, and may own keys
	Created *keyRow          // a key that was created just now, with its value
	Clients []connect.Client // the lines of clients with that key; nil if it may not run anything
}

// A keyRow is a key in the API's answers.
type keyRow struct {
	ID            string
	Name          string
	RedactedValue string `json:"redacted_value"`
	CreatedAt     int64  `json:"created_at"`
	ExpiresAt     *int64 `json:"expires_at"`
	LastUsedAt    *int64 `json:"last_used_at"`
	Note          string
	OwnerID       string `json:"owner_id"`
	Role          berth.Role
	Scope         berth.KeyScope
	Value         string // only in the answer to its creation
	Limits        struct {
		CostPerMonth *berth.Amount `json:"cost_per_month"`
	}

	OwnerName string `json:"-"` // of the person who answers for the key; "" for nobody
	Maker     string `json:"-"` // who has made the key; "" if the record does not tell
}

// Rights returns what the key may do, in a word.
func (k keyRow) Rights() string {
	if k.Role == "" {
		return "all"
	}
	return string(k.Role)
}

// Limited returns what narrows the key beside its role; "" if nothing does.
func (k keyRow) Limited() string {
	var parts []string
	if len(k.Scope.Routes) > 0 {
		parts = append(parts, "Routes: "+strings.Join(k.Scope.Routes, ", "))
	}
	if len(k.Scope.Tools) > 0 {
		parts = append(parts, "Tools: "+strings.Join(k.Scope.Tools, ", "))
	}
	return strings.Join(parts, "; ")
}

// End returns the end of the key, which tells it from others at sight.
func (k keyRow) End() string { return "…" + k.RedactedValue[max(0, len(k.RedactedValue)-4):] }

// read reads the keys that the path of the visit names, and returns the API's path of them.
func (p *keysPage) read(v *visit) (path string, err error) {
	*p = keysPage{Path: "/console/admin-keys", Form: v.formToken(), Persons: v.console.signIn != nil}
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
	if err == nil {
		err = p.name(v)
	}
	return path, err
}

// name sets the names of the owners of keys, and of those who have made them.
func (p *keysPage) name(v *visit) error {
	makers, err := makersOf(v, p.Keys)
	if err != nil {
		return err
	}
	for i := range p.Keys {
		k := &p.Keys[i]
		if k.OwnerID != "" {
			k.OwnerName = cmp.Or(v.person(k.OwnerID), short(k.OwnerID))
		}
		k.Maker = makers[k.ID]
	}
	return nil
}

// Active reports whether keys can be made: the project is not archived.
func (p keysPage) Active() bool { return p.Project == nil || p.Project.Status == berth.ProjectActive }

// Roles returns the roles that a new key can have, the least first. The form selects none, and a form without one is
// refused: no key has more rights than somebody chose.
func (p keysPage) Roles() [][2]string {
	if p.Project == nil {
		return [][2]string{{string(berth.RoleAuditor), "reads projects, keys, usage and the audit record"},
			{string(berth.RoleProvisioner), "users and groups, by SCIM"},
			{string(berth.RoleAdmin), "changes them, too"}}
	}
	return [][2]string{{string(berth.RoleViewer), "reads"}, {string(berth.RoleApprover), "reads and approves"},
		{string(berth.RoleRunner), "runs and containers, without approvals"},
		{string(berth.RoleMaintainer), "everything in the project"}}
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
	roles := berth.ProjectRoles
	if p.Project == nil {
		roles = berth.OrganizationRoles
	}
	if !slices.Contains(roles, berth.Role(v.form.fields.Get("role"))) {
		return &failure{Status: http.StatusBadRequest, Message: "The key has no role. Go back and choose one."}
	}
	terms(v, req)
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
	if p.Project != nil && created.Role.Permissions(p.Project.ID)&berth.MayRun != 0 {
		p.Clients = clientsOf(v, created.Value)
	}
	return v.show(http.StatusOK, "keys", p.Title(), p)
}

// terms sets on what terms the form of the visit gives out a key.
func terms(v *visit, req map[string]any) {
	req["role"] = v.form.fields.Get("role")
	for _, name := range []string{"note", "owner"} {
		if text := strings.TrimSpace(v.text(name)); text != "" {
			req[name] = text
		}
	}
	scope := berth.KeyScope{Tools: strings.Fields(v.text("tools"))}
	for line := range strings.Lines(v.text("routes")) {
		if line = strings.TrimSpace(line); line != "" {
			scope.Routes = append(scope.Routes, line)
		}
	}
	if !scope.Empty() {
		req["scope"] = scope
	}
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

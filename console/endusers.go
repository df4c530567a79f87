package console

import (
	"net/http"
	"net/url"

	"github.com/berth-run/berth"
)

// An endUsersPage is the list of end users.
type endUsersPage struct {
	Users    []endUserRow
	Named    string // the name that was searched for
	Next     string // path of the next page; "" at the end
	Settings berth.EndUserSettings
	Form     formToken
	Base     string // URL of the API
}

// Off reports whether requests cannot name end users.
func (p endUsersPage) Off() bool { return p.Settings.Enabled == nil || !*p.Settings.Enabled }

// Snippet returns how to turn end users on.
func (p endUsersPage) Snippet() string {
	return "curl " + p.Base + "/end_user_settings -H \"Authorization: Bearer $BERTH_API_KEY\" \\\n" +
		"  -H \"Content-Type: application/json\" -d '{\"enabled\": true, \"computer\": \"chat\"}'"
}

// An endUserRow is an end user.
type endUserRow struct{ berth.EndUser }

// Title returns what the client calls the user.
func (u endUserRow) Title() string {
	switch {
	case u.User != "":
		return u.User
	case u.Chat != "":
		return "Chat " + u.Chat
	}
	return string(u.ID)
}

// An endUserPage is the page of an end user.
type endUserPage struct {
	endUserRow
	Usage berth.EndUserUsage
	Spent bool // the visitor may read the usage
	Form  formToken
}

// show serves GET /console/end-users, the newest first.
func (p *endUsersPage) show(v *visit) error {
	query := url.Values{"limit": {"50"}, "order": {"desc"}}
	given := v.r.URL.Query()
	for _, name := range []string{"after", "user"} {
		if value := given.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	var found list[endUserRow]
	if err := v.get("/v1/end_users?"+query.Encode(), &found); err != nil {
		return err
	}
	*p = endUsersPage{Users: found.Data, Named: given.Get("user"), Form: v.formToken(), Base: baseURL(v)}
	if err := v.get("/v1/end_user_settings", &p.Settings); err != nil {
		return err
	}
	if found.HasMore {
		p.Next = "/console/end-users?" + url.Values{"after": {found.LastID}}.Encode()
	}
	return v.show(http.StatusOK, "endusers", "End users", p)
}

func endUserPath(v *visit) string { return "/v1/end_users/" + url.PathEscape(v.r.PathValue("user")) }

// show serves GET /console/end-users/{user}.
func (p *endUserPage) show(v *visit) error {
	*p = endUserPage{Form: v.formToken()}
	if err := v.get(endUserPath(v), &p.EndUser); err != nil {
		return err
	}
	if p.Spent = p.Form.May("GET /v1/end_users/{user}/usage"); p.Spent {
		if err := v.get(endUserPath(v)+"/usage", &p.Usage); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "enduser", p.Title(), p)
}

// delete serves POST /console/end-users/{user}/delete.
func (*endUserPage) delete(v *visit) error {
	if err := v.delete(endUserPath(v)); err != nil {
		return err
	}
	return v.redirect("/console/end-users")
}

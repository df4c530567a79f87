package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// An identity tells callers who they are.
type identity struct {
	Object      string          `json:"object"`     // "berth.identity"
	KeyID       berth.KeyID     `json:"key_id"`     // user_… of a person; empty on a server without keys
	ProjectID   berth.ProjectID `json:"project_id"` // "organization" of an administrator or auditor
	Person      string          `json:"person"`     // whose session it is, or who owns the key; may be empty
	Session     bool            `json:"session"`    // the caller is a person who has signed in
	Permissions []string        `json:"permissions"`
}

// whoAmI serves GET /v1/whoami.
func whoAmI(x *exchange.Exchange, _ *http.Request, c berth.Caller) error {
	who := identity{Object: "berth.identity", KeyID: c.Key, ProjectID: c.Project, Person: c.Person,
		Session: c.Session != "", Permissions: []string{}}
	for _, p := range berth.Permissions() {
		if c.May(p) {
			who.Permissions = append(who.Permissions, p.String())
		}
	}
	return x.JSON(http.StatusOK, who)
}

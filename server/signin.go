package server

import (
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/people"
	"github.com/berth-run/berth/people/oidc"
	"github.com/berth-run/berth/server/config"
)

// openSignIn opens the door through which people sign in, if the configuration has a provider.
func (s *Server) openSignIn(b *base) {
	c := b.Config.SignIn
	b.callers = b.db
	if !c.Enabled() {
		return
	}
	secret, err := c.Secret()
	if err != nil {
		b.Log.Error("failed to read the secret of sign_in; nobody can sign in", "err", err) // Verify has refused it
	}
	service := people.New(people.Options{Objects: b.db, Audit: b.audit, Issuer: c.Issuer, Grants: grants(c),
		Life: c.Session})
	url := strings.TrimSuffix(c.URL, "/")
	provider := oidc.NewProvider(oidc.Options{Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: secret,
		RedirectURL: url + oidc.CallbackPath, Scopes: c.Scopes, GroupsClaim: c.GroupsClaim,
		Transport: b.proxies.Transport(), Log: b.Log})
	b.door = &oidc.Door{Provider: provider, People: service, Seal: b.keys.Newest(), Title: c.Title(), URL: url,
		Log: b.Log, Now: time.Now, Admit: s.forwarded.admit}
	b.callers = service.Keys(b.db)
	s.later(inBackground(provider.Run))
}

// grants returns what groups may do.
func grants(c config.SignIn) (all []people.Grant) {
	for _, p := range c.Projects {
		g := people.Grant{Group: p.Group, Project: berth.ProjectID(p.Project), Role: people.Member}
		if p.Role == config.RoleAdmin {
			g.Project, g.Role = berth.AdminProject, people.Admin
		}
		all = append(all, g)
	}
	return all
}

package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/scim"
	"github.com/berth-run/berth/api/signin"
	"github.com/berth-run/berth/people"
	"github.com/berth-run/berth/people/oidc"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
)

// openSignIn opens the door through which people sign in, if the configuration has a provider.
func (s *Server) openSignIn(b *base) {
	c := b.Config.SignIn
	b.callers = b.db
	b.people = people.New(people.Options{Objects: b.db, Audit: b.audit, Issuer: c.Issuer, Grants: grants(c),
		Life: c.Session})
	if !c.Enabled() {
		return
	}
	secret, err := c.Secret()
	if err != nil {
		b.Log.Error("failed to read the secret of sign_in; nobody can sign in", "err", err) // Verify has refused it
	}
	url := strings.TrimSuffix(c.URL, "/")
	provider := oidc.NewProvider(oidc.Options{Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: secret,
		RedirectURL: url + oidc.CallbackPath, Scopes: c.Scopes, GroupsClaim: c.GroupsClaim,
		Transport: b.proxies.Transport(), Log: b.Log})
	b.door = &oidc.Door{Provider: provider, People: b.people, Seal: b.keys.Newest(), Title: c.Title(), URL: url,
		Log: b.Log, Now: time.Now, Admit: s.forwarded.admit}
	b.callers = b.people.Keys(b.db)
	s.later(inBackground(provider.Run))
}

// programSignIn returns the door through which programs of people sign in, or nil.
func (s *Server) programSignIn(b *base) *signin.Door {
	if b.door == nil {
		return nil
	}
	return &signin.Door{People: b.people, Origin: b.door.Origin(), Admit: s.forwarded.admit, Now: time.Now}
}

// provisioning returns the door of SCIM, or nil.
func (s *Server) provisioning(b *base) *scim.Door {
	if b.door == nil {
		return nil
	}
	records := b.people.Provisioning()
	s.later(inBackground(func(ctx context.Context) {
		if err := records.ApplyAll(ctx); err != nil && ctx.Err() == nil {
			b.Log.Error("failed to apply what SCIM has provisioned; the next change applies it", "err", err)
		}
	}))
	return scim.New(records)
}

// useInterval is how often the times of the last use of keys are saved.
const useInterval = time.Minute

// noteUses returns what notes the uses of keys, and saves them from time to time and when the server stops.
func (s *Server) noteUses(b *base) func(*berth.Key) {
	uses := project.NewUses(b.db, time.Now)
	save := func(ctx context.Context) {
		if err := uses.Save(ctx); err != nil && ctx.Err() == nil {
			b.Log.Error("failed to save the last use of keys; will retry", "err", err)
		}
	}
	s.later(func(ctx context.Context) error { return uses.Save(ctx) })
	s.later(inBackground(func(ctx context.Context) { repeat(ctx, useInterval, useInterval, save) }))
	return uses.Used
}

// grants returns what groups may do.
func grants(c config.SignIn) (all []people.Grant) {
	for _, p := range c.Projects {
		g := people.Grant{Group: p.Group, Project: berth.ProjectID(p.Project), Role: p.Granted()}
		if slices.Contains(berth.OrganizationRoles, g.Role) {
			g.Project = berth.AdminProject
		}
		all = append(all, g)
	}
	return all
}

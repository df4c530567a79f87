package project

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// ErrLastKey is the error of RevokeKeys if no key would be left.
var ErrLastKey = errors.New("no key would be left")

// ErrArchived is the error of CreateKey for an archived project.
var ErrArchived = errors.New("the project is archived")

// A KeyRequest is what a new key shall be.
type KeyRequest struct {
	Name     string
	Note     string
	Owner    string        // of the person who answers for it: its id or address; empty for nobody
	Lifetime time.Duration // 0: the key does not expire
	Role     berth.Role    // empty for all that a key of its project may do
	Scope    berth.KeyScope
	Limits   berth.KeyLimits
}

// CreateKey creates an API key of a project, or an admin key of AdminProject, and returns it with
// its secret. It stores only the secret's SHA-256.
func (s *Service) CreateKey(ctx context.Context, p berth.ProjectID, req KeyRequest) (k *berth.Key, secret string,
	err error) {
	of, err := s.Get(ctx, p)
	if err != nil {
		return nil, "", err
	}
	if roles := berth.RolesOf(p); req.Role != "" && !slices.Contains(roles, req.Role) {
		return nil, "", berth.Invalid("role", "Invalid role: '%s'. Expected one of: %s.", req.Role, roleList(roles))
	}
	var owner string
	if req.Owner != "" {
		if owner, err = s.owner(ctx, req.Owner); err != nil {
			return nil, "", err
		}
	}
	if of.Status == berth.ProjectArchived {
		return nil, "", fmt.Errorf("%s: %w", p, ErrArchived)
	}
	secret = berth.KeyPrefix + rand.Text() + rand.Text()
	now := time.Now()
	k = &berth.Key{ID: berth.KeyID(berth.NewID(berth.PrefixKey)), Project: p, Name: req.Name,
		Hash: sha256.Sum256([]byte(secret)), Tail: secret[len(secret)-4:], CreatedAt: now.Unix(), Limits: req.Limits,
		Note: req.Note, Owner: owner, Role: req.Role, Scope: req.Scope}
	if req.Lifetime > 0 {
		k.ExpiresAt = now.Add(req.Lifetime).Unix()
	}
	if err := s.opts.Keys.CreateKey(ctx, k); err != nil {
		return nil, "", fmt.Errorf("create key: %w", err)
	}
	if err := s.commit(ctx, audit.Entry{Action: audit.KeyCreated, Project: p, Object: string(k.ID),
		Name: req.Name, Reason: string(req.Role)}); err != nil {
		return nil, "", errors.Join(err, s.opts.Keys.DeleteKey(context.WithoutCancel(ctx), k.ID))
	}
	return k, secret, nil
}

func roleList(roles []berth.Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = "'" + string(r) + "'"
	}
	return strings.Join(names, ", ")
}

// owner returns the id of the person with an id or an address.
func (s *Service) owner(ctx context.Context, text string) (string, error) {
	if s.opts.Owners == nil {
		return "", berth.Invalid("owner", "Nobody signs in to this server, so a key can have no owner.")
	}
	id, err := s.opts.Owners(ctx, text)
	if errors.Is(err, store.ErrNotFound) {
		return "", berth.Invalid("owner", "No person '%s' has signed in to this server yet.", text)
	}
	if err != nil {
		return "", fmt.Errorf("find owner: %w", err)
	}
	return id, nil
}

// A KeyChange is what changes of a key. What is nil stays.
type KeyChange struct {
	Name     *string
	Note     *string
	Owner    *string        // id or address of a person; empty for nobody
	Lifetime *time.Duration // from now on; 0: the key does not expire
	Role     *berth.Role
	Scope    *berth.KeyScope
	Limits   *berth.KeyLimits
}

// UpdateKey changes a key and returns it. The audit record has the change of the role. If there is no such key, it
// returns store.ErrNotFound.
func (s *Service) UpdateKey(ctx context.Context, id berth.KeyID, c KeyChange) (*berth.Key, error) {
	if c.Owner != nil && *c.Owner != "" {
		owner, err := s.owner(ctx, *c.Owner)
		if err != nil {
			return nil, err
		}
		c.Owner = &owner
	}
	var what []string
	k, err := s.opts.Keys.UpdateKey(ctx, id, func(k *berth.Key) (err error) {
		what, err = c.apply(k, time.Now())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	if len(what) == 0 {
		return k, nil
	}
	return k, s.commit(ctx, audit.Entry{Action: audit.KeyUpdated, Project: k.Project, Object: string(id), Name: k.Name,
		Reason: strings.Join(what, ", ")})
}

// apply changes a key and returns what it has changed, in words for the audit record.
func (c *KeyChange) apply(k *berth.Key, now time.Time) (what []string, err error) {
	if c.Role != nil && k.Role != *c.Role {
		if roles := berth.RolesOf(k.Project); !slices.Contains(roles, *c.Role) {
			return nil, berth.Invalid("role", "Invalid role: '%s'. Expected one of: %s.", *c.Role, roleList(roles))
		}
		what = append(what, fmt.Sprintf("role: %s to %s", cmp.Or(k.Role, "none"), *c.Role))
		k.Role = *c.Role
	}
	set := func(name string, to, from *string) {
		if from != nil && *from != *to {
			what = append(what, name)
			*to = *from
		}
	}
	set("owner", &k.Owner, c.Owner)
	set("name", &k.Name, c.Name)
	set("note", &k.Note, c.Note)
	if c.Scope != nil {
		what = append(what, "scope")
		k.Scope = *c.Scope
	}
	if c.Limits != nil {
		what = append(what, "limits")
		k.Limits = *c.Limits
	}
	if c.Lifetime != nil {
		what = append(what, "expiry")
		if k.ExpiresAt = 0; *c.Lifetime > 0 {
			k.ExpiresAt = now.Add(*c.Lifetime).Unix()
		}
	}
	return what, nil
}

// ListKeys returns the keys of all projects, the oldest first.
func (s *Service) ListKeys(ctx context.Context) ([]*berth.Key, error) {
	keys, err := s.opts.Keys.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

// RevokeKeys deletes keys and returns the number of remaining keys. If one of ids does not
// exist, it returns store.ErrNotFound and deletes no key. If no key would remain, it
// returns ErrLastKey unless last is true.
func (s *Service) RevokeKeys(ctx context.Context, ids []berth.KeyID, last bool) (left int, err error) {
	s.revoking.Lock()
	defer s.revoking.Unlock()
	keys, err := s.ListKeys(ctx)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		i := slices.IndexFunc(keys, func(k *berth.Key) bool { return k.ID == id })
		if i < 0 {
			return 0, fmt.Errorf("%s: %w", id, store.ErrNotFound)
		}
		keys = slices.Delete(keys, i, i+1)
	}
	if len(keys) == 0 && !last {
		return 0, ErrLastKey
	}
	for _, id := range ids {
		if err := s.opts.Keys.DeleteKey(ctx, id); err != nil {
			return 0, fmt.Errorf("%s: %w", id, err)
		}
		if err := s.commit(ctx, audit.Entry{Action: audit.KeyRevoked, Object: string(id)}); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// A Summary is a project with the number of its keys.
type Summary struct {
	*berth.Project
	Keys int
}

// Known reports whether a project has a record or a key.
func (s *Service) Known(ctx context.Context, id berth.ProjectID) (bool, error) {
	all, err := s.listed(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(p *Summary) bool { return p.ID == id }), nil
}

// ListAll returns the projects that have a record, then those that have only keys, and the
// default project in any case.
func (s *Service) ListAll(ctx context.Context) ([]*Summary, error) {
	all, err := s.listed(ctx)
	if err != nil || slices.ContainsFunc(all, func(p *Summary) bool { return p.ID == berth.DefaultProject }) {
		return all, err
	}
	return append(all, &Summary{Project: active(berth.DefaultProject)}), nil
}

// listed returns the projects that have a record or a key.
func (s *Service) listed(ctx context.Context) ([]*Summary, error) {
	recorded, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := s.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	var all []*Summary
	known := map[berth.ProjectID]*Summary{}
	add := func(p *berth.Project) {
		known[p.ID] = &Summary{Project: p}
		all = append(all, known[p.ID])
	}
	for _, p := range recorded {
		add(p)
	}
	for _, k := range keys {
		if k.Project == berth.AdminProject {
			continue
		}
		if known[k.Project] == nil {
			add(active(k.Project))
		}
		known[k.Project].Keys++
	}
	return all, nil
}

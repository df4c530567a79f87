// Package people has the records of the persons who sign in, and their sessions.
//
// A session has a token for each project that the person's groups map to. A token is used as an API key:
// Service.Keys adds the tokens to the keys of a store, so that a person passes the same doors, limits and records
// as a program. The id of the person takes the place of the key's id.
package people

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// house is the owner of the records. No key belongs to it, so no caller can read them.
const house berth.ProjectID = ""

// A Person is somebody who has signed in. The record is made at the first sign-in and renewed at each further one.
type Person struct {
	ID          string   `json:"id"` // user_…, from issuer and subject
	Issuer      string   `json:"issuer"`
	Subject     string   `json:"subject"`
	Name        string   `json:"name"`
	Email       string   `json:"email"`
	Groups      []string `json:"groups"`
	CreatedAt   int64    `json:"created_at"` // Unix seconds, as the others
	SignedInAt  int64    `json:"signed_in_at"`
	Deactivated bool     `json:"deactivated"`

	// What SCIM says of the person.
	User          string   `json:"scim_user,omitempty"` // id
	UserGroups    []string `json:"scim_groups,omitempty"`
	Deprovisioned bool     `json:"deprovisioned,omitempty"` // its user is not active, or was deleted
}

// Active reports whether the person may have access: neither the operator nor the provider has ended it.
func (p *Person) Active() bool { return !p.Deactivated && !p.Deprovisioned }

// AllGroups returns the groups of the claim and of SCIM.
func (p *Person) AllGroups() []string { return slices.Concat(p.Groups, p.UserGroups) }

// Label returns what others see of the person.
func (p *Person) Label() string {
	for _, text := range []string{p.Email, p.Name, p.Subject} {
		if text != "" {
			return text
		}
	}
	return p.ID
}

// Claims are what a provider says of a person.
type Claims struct {
	Issuer, Subject, Name, Email string
	Groups                       []string
}

// personPrefix is the prefix of the ids of persons.
const personPrefix = "user_"

// id returns the id of a person.
func (c Claims) id() string {
	sum := sha256.Sum256([]byte(c.Issuer + "\x00" + c.Subject))
	return personPrefix + hex.EncodeToString(sum[:12])
}

// Everyone is the group of all who sign in.
const Everyone = "*"

// A Grant gives a role to a group.
type Grant struct {
	Group   string
	Project berth.ProjectID // berth.AdminProject for a role of the organization
	Role    berth.Role
}

// ErrDeactivated is the error of SignIn for a person who was deactivated.
var ErrDeactivated = errors.New("the person is deactivated")

// ErrNoAccess is the error of SignIn for a person whose groups map to nothing.
var ErrNoAccess = errors.New("no group of the person has access")

// Auditor records actions; *audit.Log is one.
type Auditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
}

// Options are a Service's parts.
type Options struct {
	Objects store.Objects
	Audit   Auditor // may be nil

	Issuer string        // persons of others have no access
	Grants []Grant       // what groups may do
	Life   time.Duration // of a session
	Now    func() time.Time
}

// A Service keeps the records of persons. It is safe for concurrent use.
type Service struct {
	opts      Options
	guesses   guesses
	provision *Provisioning
}

// New returns a service.
func New(opts Options) *Service {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Service{opts: opts}
	s.provision = &Provisioning{people: s}
	return s
}

// Projects returns the projects that a person has access to, as the configuration maps the groups now.
func (s *Service) Projects(p *Person) (found []berth.ProjectID) {
	for _, g := range s.grants(p) {
		if !slices.Contains(found, g.Project) {
			found = append(found, g.Project)
		}
	}
	return found
}

// Permissions returns what a person may do in a project: the sum of the roles of its groups.
func (s *Service) Permissions(p *Person, project berth.ProjectID) (sum berth.Permission) {
	for _, g := range s.grants(p) {
		if g.Project == project {
			sum |= g.Role.Permissions(project)
		}
	}
	return sum
}

// grants returns the grants of a person's groups.
func (s *Service) grants(p *Person) (found []Grant) {
	if !p.Active() || p.Issuer != s.opts.Issuer {
		return nil
	}
	for _, g := range s.opts.Grants {
		if (g.Group == Everyone || slices.Contains(p.AllGroups(), g.Group)) && g.Role.Permissions(g.Project) != 0 {
			found = append(found, g)
		}
	}
	return found
}

func personKey(id string) store.ObjectKey { return store.ObjectKey{Kind: store.KindPerson, ID: id} }

// save creates or renews the record of a person.
func (s *Service) save(ctx context.Context, c Claims) (*Person, error) {
	now := s.opts.Now().Unix()
	p := &Person{ID: c.id(), Issuer: c.Issuer, Subject: c.Subject, Name: c.Name, Email: c.Email, Groups: c.Groups,
		CreatedAt: now, SignedInAt: now}
	o, err := objectOf(personKey(p.ID), now, p)
	if err != nil {
		return nil, err
	}
	switch err = s.opts.Objects.CreateObjects(ctx, house, o); {
	case err == nil:
		err = s.commit(ctx, p, audit.PersonCreated, "")
	case errors.Is(err, store.ErrExists):
		p, err = s.change(ctx, p.ID, func(known *Person) {
			known.Name, known.Email, known.Groups = c.Name, c.Email, c.Groups
			if known.Active() {
				known.SignedInAt = now
			}
		})
	default:
		err = fmt.Errorf("create person: %w", err)
	}
	if err == nil {
		err = s.Provisioning().adoptPerson(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, p.ID)
}

// change changes the record of a person.
func (s *Service) change(ctx context.Context, id string, edit func(*Person)) (*Person, error) {
	return change(ctx, s.opts.Objects, personKey(id), func(p *Person) error {
		edit(p)
		return nil
	})
}

// Get returns a person.
func (s *Service) Get(ctx context.Context, id string) (*Person, error) {
	return get[Person](ctx, s.opts.Objects, personKey(id))
}

// List returns all persons, the oldest first.
func (s *Service) List(ctx context.Context) ([]*Person, error) {
	return all[Person](ctx, s.opts.Objects, store.KindPerson)
}

// Find returns the person with an id, an address, or a part of the id.
func (s *Service) Find(ctx context.Context, text string) (*Person, error) {
	people, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []*Person
	for _, p := range people {
		if p.ID == text {
			return p, nil
		}
		if p.Email != "" && strings.EqualFold(p.Email, text) || len(text) >= 4 && strings.HasPrefix(p.ID,
			personPrefix+strings.TrimPrefix(text, personPrefix)) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("person %q: %w", text, store.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%d persons match %q; use the id of one", len(found), text)
}

// Owner returns the id of the person that Find finds.
func (s *Service) Owner(ctx context.Context, text string) (id string, err error) {
	p, err := s.Find(ctx, text)
	if err != nil {
		return "", err
	}
	return p.ID, nil
}

// Deactivate ends a person's access and sessions until Activate.
func (s *Service) Deactivate(ctx context.Context, id string) error {
	p, err := s.change(ctx, id, func(p *Person) { p.Deactivated = true })
	if err != nil {
		return err
	}
	if err := s.commit(ctx, p, audit.PersonDeactivated, ""); err != nil {
		return err
	}
	_, err = s.endSessions(ctx, id)
	return err
}

// Activate gives a person who was deactivated access again.
func (s *Service) Activate(ctx context.Context, id string) error {
	p, err := s.change(ctx, id, func(p *Person) { p.Deactivated = false })
	if err != nil {
		return err
	}
	return s.commit(ctx, p, audit.PersonActivated, "")
}

// commit records an action of a person.
func (s *Service) commit(ctx context.Context, p *Person, action audit.Action, reason string) error {
	if s.opts.Audit == nil {
		return nil
	}
	err := s.opts.Audit.Commit(ctx, audit.Entry{Action: action, Object: p.ID, Name: p.Label(), Reason: reason})
	if err != nil {
		return fmt.Errorf("record %s: %w", action, err)
	}
	return nil
}

// all returns the records of a kind, the oldest first.
func all[T any](ctx context.Context, objects store.Objects, kind store.Kind) ([]*T, error) {
	var found []*T
	for page := (store.Page{Limit: 1000, Ascending: true}); ; {
		list, more, err := objects.ListObjects(ctx, house, kind, "", page)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
		for _, o := range list {
			one := new(T)
			if err := json.Unmarshal(o.Body, one); err != nil {
				return nil, fmt.Errorf("decode %s: %w", kind, err)
			}
			found = append(found, one)
			page.After = o.ID
		}
		if !more {
			return found, nil
		}
	}
}

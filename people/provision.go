package people

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// A User is an account that the provider of identities has provisioned by SCIM. It becomes a person's when somebody
// signs in whose subject is its external id, or whose address is its name.
type User struct {
	ID          string `json:"id"`
	UserName    string `json:"user_name"`
	ExternalID  string `json:"external_id"`
	DisplayName string `json:"display_name"`
	GivenName   string `json:"given_name"`
	FamilyName  string `json:"family_name"`
	Email       string `json:"email"`
	Active      bool   `json:"active"`
	Person      string `json:"person"` // id; "" until somebody has signed in
	CreatedAt   int64  `json:"created_at"`
	ModifiedAt  int64  `json:"modified_at"`
}

// A Group is a group that the provider has provisioned.
type Group struct {
	ID          string   `json:"id"`
	DisplayName string   `json:"display_name"` // which sign_in.projects names
	ExternalID  string   `json:"external_id"`
	Members     []string `json:"members"` // ids of users
	CreatedAt   int64    `json:"created_at"`
	ModifiedAt  int64    `json:"modified_at"`
}

// ErrTaken is the error for a user whose name another has.
var ErrTaken = errors.New("another user has this name")

// ErrMember is the error for a group with a member that does not exist.
var ErrMember = errors.New("a member of the group does not exist")

// bySCIM is the reason of audit entries.
const bySCIM = "scim"

// A Provisioning keeps the users and groups of SCIM, and the access of the persons whose they are. It is safe for
// concurrent use.
type Provisioning struct {
	people *Service
	mu     sync.Mutex // held while the groups of persons are computed
}

// Provisioning returns what keeps the users and groups of SCIM.
func (s *Service) Provisioning() *Provisioning { return s.provision }

func userKey(id string) store.ObjectKey { return store.ObjectKey{Kind: store.KindSCIMUser, ID: id} }
func nameKey(name string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSCIMName, ID: hashOf(strings.ToLower(name))}
}
func groupKey(id string) store.ObjectKey { return store.ObjectKey{Kind: store.KindSCIMGroup, ID: id} }

// Get returns a user.
func (p *Provisioning) Get(ctx context.Context, id string) (*User, error) {
	return get[User](ctx, p.people.opts.Objects, userKey(id))
}

// Named returns the user with a name.
func (p *Provisioning) Named(ctx context.Context, name string) (*User, error) {
	owner, err := get[string](ctx, p.people.opts.Objects, nameKey(name))
	if err != nil {
		return nil, err
	}
	u, err := p.Get(ctx, *owner)
	if err == nil && !strings.EqualFold(u.UserName, name) {
		return nil, fmt.Errorf("user %q: %w", name, store.ErrNotFound) // a change of the name was interrupted
	}
	return u, err
}

// Users returns all users, the oldest first.
func (p *Provisioning) Users(ctx context.Context) ([]*User, error) {
	return all[User](ctx, p.people.opts.Objects, store.KindSCIMUser)
}

// reserve takes a name for a user.
func (p *Provisioning) reserve(ctx context.Context, name, id string) error {
	o, err := objectOf(nameKey(name), p.people.opts.Now().Unix(), id)
	if err != nil {
		return err
	}
	err = p.people.opts.Objects.CreateObjects(ctx, house, o)
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	known, err := p.Named(ctx, name)
	if err == nil && known.ID != id {
		return ErrTaken
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	_, err = change(ctx, p.people.opts.Objects, nameKey(name), func(owner *string) error { // nobody has it
		*owner = id
		return nil
	})
	return err
}

// Create creates a user.
func (p *Provisioning) Create(ctx context.Context, u User) (*User, error) {
	u.ID, u.CreatedAt, u.Person = berth.NewID("scimuser_"), p.people.opts.Now().Unix(), ""
	u.ModifiedAt = u.CreatedAt
	if err := p.reserve(ctx, u.UserName, u.ID); err != nil {
		return nil, err
	}
	o, err := objectOf(userKey(u.ID), u.CreatedAt, u)
	if err != nil {
		return nil, err
	}
	if err := p.people.opts.Objects.CreateObjects(ctx, house, o); err != nil {
		return nil, fmt.Errorf("create user: %w", err)
	}
	return p.adopt(ctx, &u)
}

// Change changes a user. A user who is not active any more loses access, and the sessions end.
func (p *Provisioning) Change(ctx context.Context, id string, edit func(*User) error) (*User, error) {
	before, err := p.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	wanted := *before
	if err := edit(&wanted); err != nil {
		return nil, err
	}
	renamed := !strings.EqualFold(before.UserName, wanted.UserName)
	if renamed {
		if err := p.reserve(ctx, wanted.UserName, id); err != nil {
			return nil, err
		}
	}
	u, err := change(ctx, p.people.opts.Objects, userKey(id), func(u *User) error {
		if err := edit(u); err != nil {
			return err
		}
		u.ID, u.Person, u.CreatedAt, u.ModifiedAt = id, before.Person, before.CreatedAt, p.people.opts.Now().Unix()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if renamed {
		if err := p.free(ctx, before.UserName, id); err != nil {
			return nil, err
		}
	}
	return p.adopt(ctx, u)
}

// free gives the name of a user back, if it is still the user's.
func (p *Provisioning) free(ctx context.Context, name, id string) error {
	owner, err := get[string](ctx, p.people.opts.Objects, nameKey(name))
	if err == nil && *owner == id {
		err = p.people.opts.Objects.DeleteObject(ctx, house, nameKey(name))
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("free name: %w", err)
	}
	return nil
}

// Delete deletes a user, and ends the access of the person.
func (p *Provisioning) Delete(ctx context.Context, id string) error {
	u, err := p.Get(ctx, id)
	if err != nil {
		return err
	}
	if u.Person != "" {
		if err := p.people.setUser(ctx, u.Person, id, false, nil); err != nil {
			return err
		}
	}
	groups, err := p.Groups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if !slices.Contains(g.Members, id) {
			continue
		}
		_, err := change(ctx, p.people.opts.Objects, groupKey(g.ID), func(g *Group) error {
			g.Members = slices.DeleteFunc(g.Members, func(m string) bool { return m == id })
			return nil
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	if err := p.free(ctx, u.UserName, id); err != nil {
		return err
	}
	if err := p.people.opts.Objects.DeleteObject(ctx, house, userKey(id)); err != nil {
		return fmt.Errorf("delete user: %w", err)
	}
	return nil
}

// adopt finds the person of a user, and gives the person the access that the user has.
func (p *Provisioning) adopt(ctx context.Context, u *User) (*User, error) {
	if u.Person == "" {
		persons, err := p.people.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, one := range persons {
			if one.Issuer == p.people.opts.Issuer && (one.User == "" || one.Deprovisioned) && u.is(one) {
				if u, err = p.link(ctx, u, one.ID); err != nil {
					return nil, err
				}
				break
			}
		}
	}
	return u, p.apply(ctx, u)
}

// is reports whether a user is a person.
func (u *User) is(p *Person) bool {
	return u.ExternalID != "" && u.ExternalID == p.Subject || p.Email != "" && strings.EqualFold(u.UserName, p.Email)
}

func (p *Provisioning) link(ctx context.Context, u *User, person string) (*User, error) {
	return change(ctx, p.people.opts.Objects, userKey(u.ID), func(u *User) error {
		u.Person = person
		return nil
	})
}

// adoptPerson finds the user of a person who signs in.
func (p *Provisioning) adoptPerson(ctx context.Context, person *Person) error {
	if person.User != "" {
		if _, err := p.Get(ctx, person.User); err == nil || !errors.Is(err, store.ErrNotFound) {
			return err // its changes have reached the person
		}
	}
	users, err := p.Users(ctx)
	if err != nil {
		return err
	}
	// An external id is the provider's; a name may have been somebody else's.
	slices.SortStableFunc(users, func(a, b *User) int {
		return rank(a.ExternalID != person.Subject) - rank(b.ExternalID != person.Subject)
	})
	for _, u := range users {
		if (u.Person == "" || u.Person == person.ID) && u.is(person) {
			if u, err = p.link(ctx, u, person.ID); err != nil {
				return err
			}
			return p.apply(ctx, u)
		}
	}
	return nil
}

func rank(later bool) int {
	if later {
		return 1
	}
	return 0
}

// apply gives the persons of users the access that the users have.
func (p *Provisioning) apply(ctx context.Context, users ...*User) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		groups, err := p.Groups(ctx)
		if err != nil {
			return err
		}
		names := namesOf(groups)
		for _, u := range users {
			if u.Person == "" {
				continue
			}
			if err := p.people.setUser(ctx, u.Person, u.ID, u.Active, names[u.ID]); err != nil {
				return err
			}
		}
		again, err := p.Groups(ctx)
		if err != nil {
			return err
		}
		// Another server may have saved a group between, and applied it before this one has.
		if maps.EqualFunc(names, namesOf(again), slices.Equal) {
			return nil
		}
	}
}

// namesOf returns the names of the groups of users.
func namesOf(groups []*Group) map[string][]string {
	names := map[string][]string{}
	for _, g := range groups {
		for _, m := range g.Members {
			if !slices.Contains(names[m], g.DisplayName) {
				names[m] = append(names[m], g.DisplayName)
			}
		}
	}
	return names
}

// ApplyAll gives all persons the access that their users have: a server may have stopped between a change and its
// effect.
func (p *Provisioning) ApplyAll(ctx context.Context) error {
	users, err := p.Users(ctx)
	if err != nil {
		return err
	}
	return p.apply(ctx, users...)
}

// setUser sets what SCIM says of a person.
func (s *Service) setUser(ctx context.Context, id, user string, active bool, groups []string) error {
	was := true
	known, err := s.change(ctx, id, func(p *Person) {
		was = !p.Deprovisioned
		p.User, p.Deprovisioned, p.UserGroups = user, !active, groups
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil || was == active:
		return err
	case active:
		return s.commit(ctx, known, audit.PersonActivated, bySCIM)
	}
	if err := s.commit(ctx, known, audit.PersonDeactivated, bySCIM); err != nil {
		return err
	}
	_, err = s.endSessions(ctx, id)
	return err
}

// Group returns a group.
func (p *Provisioning) Group(ctx context.Context, id string) (*Group, error) {
	return get[Group](ctx, p.people.opts.Objects, groupKey(id))
}

// Groups returns all groups, the oldest first.
func (p *Provisioning) Groups(ctx context.Context) ([]*Group, error) {
	return all[Group](ctx, p.people.opts.Objects, store.KindSCIMGroup)
}

// CreateGroup creates a group.
func (p *Provisioning) CreateGroup(ctx context.Context, g Group) (*Group, error) {
	g.ID, g.CreatedAt = berth.NewID("scimgroup_"), p.people.opts.Now().Unix()
	g.ModifiedAt = g.CreatedAt
	members, err := p.members(ctx, &g, nil)
	if err != nil {
		return nil, err
	}
	o, err := objectOf(groupKey(g.ID), g.CreatedAt, g)
	if err != nil {
		return nil, err
	}
	if err := p.people.opts.Objects.CreateObjects(ctx, house, o); err != nil {
		return nil, fmt.Errorf("create group: %w", err)
	}
	return &g, p.apply(ctx, members...)
}

// ChangeGroup changes a group.
func (p *Provisioning) ChangeGroup(ctx context.Context, id string, edit func(*Group) error) (*Group, error) {
	before, err := p.Group(ctx, id)
	if err != nil {
		return nil, err
	}
	wanted := *before
	wanted.Members = slices.Clone(before.Members)
	if err := edit(&wanted); err != nil {
		return nil, err
	}
	affected, err := p.members(ctx, &wanted, before.Members)
	if err != nil {
		return nil, err
	}
	var was []string
	g, err := change(ctx, p.people.opts.Objects, groupKey(id), func(g *Group) error {
		was = slices.Clone(g.Members)
		if err := edit(g); err != nil {
			return err
		}
		slices.Sort(g.Members)
		g.Members = slices.Compact(g.Members)
		g.ID, g.CreatedAt, g.ModifiedAt = id, before.CreatedAt, p.people.opts.Now().Unix()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !slices.Equal(was, before.Members) { // another request has changed the group between
		if affected, err = p.Users(ctx); err != nil {
			return nil, err
		}
	}
	return g, p.apply(ctx, affected...)
}

// DeleteGroup deletes a group.
func (p *Provisioning) DeleteGroup(ctx context.Context, id string) error {
	g, err := p.Group(ctx, id)
	if err != nil {
		return err
	}
	affected, err := p.members(ctx, &Group{}, g.Members)
	if err != nil {
		return err
	}
	if err := p.people.opts.Objects.DeleteObject(ctx, house, groupKey(id)); err != nil {
		return fmt.Errorf("delete group: %w", err)
	}
	return p.apply(ctx, affected...)
}

// members sorts the members of a group and returns them, with its former ones. Only these may be gone.
func (p *Provisioning) members(ctx context.Context, g *Group, former []string) ([]*User, error) {
	slices.Sort(g.Members)
	g.Members = slices.Compact(g.Members)
	var found []*User
	for _, id := range g.Members {
		u, err := p.Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) && !slices.Contains(former, id) {
			return nil, ErrMember
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			found = append(found, u)
		}
	}
	for _, id := range former {
		if slices.Contains(g.Members, id) {
			continue
		}
		u, err := p.Get(ctx, id)
		if err == nil {
			found = append(found, u)
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	return found, nil
}

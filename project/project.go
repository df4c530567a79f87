// Package project stores the records of projects, enforces their limits and erases the data
// of archived ones.
//
// A project needs no record: a key may name any project. With a record it has a name,
// limits of its own, and an end.
package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// Kind is the kind of project objects in the store.
const Kind = store.KindProject

// house is the owner of project records. No key belongs to it, so no caller can read them.
const house berth.ProjectID = ""

func key(id berth.ProjectID) store.ObjectKey { return store.ObjectKey{Kind: Kind, ID: string(id)} }

// Options are a Service's parts.
type Options struct {
	Objects store.Objects
	Keys    store.Keys
	Audit   Auditor // records changes of projects and keys; may be nil for a Service without keys

	// Held returns an error for the client if the data of a project must not be deleted. Nil: nothing is held.
	Held func(ctx context.Context, p berth.ProjectID) error

	// Owners finds a person by an id or an address, or returns store.ErrNotFound. Nil: keys have no owners.
	Owners func(ctx context.Context, text string) (id string, err error)
}

// An Auditor records actions; *audit.Log is one.
type Auditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
}

// A Service stores the records and keys of projects. It is safe for concurrent use.
type Service struct {
	opts     Options
	by       berth.Caller // whose requests it serves; see By
	revoking *sync.Mutex  // held while keys are counted and deleted
}

// New returns a service.
func New(opts Options) *Service { return &Service{opts: opts, revoking: &sync.Mutex{}} }

// By returns the service with a caller for the audit record: the client that requests changes.
func (s *Service) By(c berth.Caller) *Service { return &Service{s.opts, c, s.revoking} }

// commit adds an entry to the audit record.
func (s *Service) commit(ctx context.Context, e audit.Entry) error {
	if s.opts.Audit == nil {
		return nil
	}
	e.Key, e.Person = s.by.Key, s.by.Person
	return s.opts.Audit.Commit(ctx, e)
}

// Create creates the record of a project. It returns store.ErrExists if the id is taken.
func (s *Service) Create(ctx context.Context, id berth.ProjectID, name string) (*berth.Project, error) {
	p := active(id)
	p.Name, p.CreatedAt = name, time.Now().Unix()
	if err := s.create(ctx, p); err != nil {
		return nil, err
	}
	return p, s.commit(ctx, audit.Entry{Action: audit.ProjectCreated, Project: id, Name: name})
}

// active returns a project without a record.
func active(id berth.ProjectID) *berth.Project {
	return &berth.Project{ID: id, Object: "organization.project", Status: berth.ProjectActive}
}

func (s *Service) create(ctx context.Context, p *berth.Project) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode project %s: %w", p.ID, err)
	}
	return s.opts.Objects.CreateObjects(ctx, house, &store.Object{ObjectKey: key(p.ID), CreatedAt: p.CreatedAt,
		Body: body})
}

// Get returns a project. A project without a record is active.
func (s *Service) Get(ctx context.Context, id berth.ProjectID) (*berth.Project, error) {
	return get(ctx, s.opts.Objects, id)
}

func get(ctx context.Context, objects store.Objects, id berth.ProjectID) (*berth.Project, error) {
	o, err := objects.GetObject(ctx, house, key(id))
	if errors.Is(err, store.ErrNotFound) {
		return active(id), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read project %s: %w", id, err)
	}
	return decode(o)
}

func decode(o *store.Object) (*berth.Project, error) {
	p := &berth.Project{}
	if err := json.Unmarshal(o.Body, p); err != nil {
		return nil, fmt.Errorf("decode project %s: %w", o.ID, err)
	}
	return p, nil
}

// List returns the projects that have a record, the oldest first.
func (s *Service) List(ctx context.Context) ([]*berth.Project, error) {
	var all []*berth.Project
	for page := (store.Page{Limit: 1000, Ascending: true}); ; {
		list, more, err := s.opts.Objects.ListObjects(ctx, house, Kind, "", page)
		if err != nil {
			return nil, fmt.Errorf("list projects: %w", err)
		}
		for _, o := range list {
			p, err := decode(o)
			if err != nil {
				return nil, err
			}
			all = append(all, p)
			page.After = o.ID
		}
		if !more {
			return all, nil
		}
	}
}

// Archive ends a project: its keys are refused from now on, and an Eraser deletes its data.
func (s *Service) Archive(ctx context.Context, id berth.ProjectID) (*berth.Project, error) {
	if s.opts.Held != nil {
		if err := s.opts.Held(ctx, id); err != nil {
			return nil, err
		}
	}
	p, err := s.update(ctx, id, func(p *berth.Project) {
		if p.Status == berth.ProjectActive {
			now := time.Now().Unix()
			p.Status, p.ArchivedAt = berth.ProjectArchived, &now
		}
	})
	if err != nil {
		return nil, err
	}
	return p, s.commit(ctx, audit.Entry{Action: audit.ProjectArchived, Project: id})
}

// markErased records that the data of an archived project is deleted.
func (s *Service) markErased(ctx context.Context, id berth.ProjectID) error {
	_, err := s.update(ctx, id, func(p *berth.Project) {
		if now := time.Now().Unix(); p.Status == berth.ProjectArchived && p.ErasedAt == nil {
			p.ErasedAt = &now
		}
	})
	return err
}

// SetLimits sets those limits of a project that are not nil.
func (s *Service) SetLimits(ctx context.Context, id berth.ProjectID, limits berth.Limits) (*berth.Project, error) {
	return s.change(ctx, id, "limits", func(p *berth.Project) { p.Limits = limits.Or(p.Limits) })
}

// ReplaceLimits replaces a project's own limits.
func (s *Service) ReplaceLimits(ctx context.Context, id berth.ProjectID, limits berth.Limits) (*berth.Project, error) {
	return s.change(ctx, id, "limits", func(p *berth.Project) { p.Limits = limits })
}

// Rename sets the name of a project.
func (s *Service) Rename(ctx context.Context, id berth.ProjectID, name string) (*berth.Project, error) {
	return s.change(ctx, id, "name", func(p *berth.Project) { p.Name = name })
}

// ClearLimits removes a project's own limits.
func (s *Service) ClearLimits(ctx context.Context, id berth.ProjectID) (*berth.Project, error) {
	return s.ReplaceLimits(ctx, id, berth.Limits{})
}

// change updates a project and records what was changed.
func (s *Service) change(ctx context.Context, id berth.ProjectID, what string,
	change func(*berth.Project)) (*berth.Project, error) {
	p, err := s.update(ctx, id, change)
	if err != nil {
		return nil, err
	}
	return p, s.commit(ctx, audit.Entry{Action: audit.ProjectUpdated, Project: id, Name: p.Name, Reason: what})
}

// update changes the record of a project. It creates the record if there is none.
func (s *Service) update(ctx context.Context, id berth.ProjectID, change func(*berth.Project)) (*berth.Project, error) {
	p := active(id)
	p.CreatedAt = time.Now().Unix()
	change(p)
	if err := s.create(ctx, p); !errors.Is(err, store.ErrExists) {
		return p, err
	}
	o, err := s.opts.Objects.UpdateObject(ctx, house, key(id), func(o *store.Object) error {
		p, err := decode(o)
		if err != nil {
			return err
		}
		change(p)
		o.Body, err = json.Marshal(p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("update project %s: %w", id, err)
	}
	return decode(o)
}

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
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Kind is that of projects in the store.
const Kind = store.KindProject

// house owns the records: no key acts for it, so that no caller reaches them.
const house berth.ProjectID = ""

func key(id berth.ProjectID) store.ObjectKey { return store.ObjectKey{Kind: Kind, ID: string(id)} }

// Create keeps a new project. store.ErrExists if its id is taken.
func Create(ctx context.Context, objects store.Objects, id berth.ProjectID, name string) (*berth.Project, error) {
	p := active(id)
	p.Name, p.CreatedAt = name, time.Now().Unix()
	return p, create(ctx, objects, p)
}

// active is a project of which nothing is kept.
func active(id berth.ProjectID) *berth.Project {
	return &berth.Project{ID: id, Object: "organization.project", Status: berth.ProjectActive}
}

func create(ctx context.Context, objects store.Objects, p *berth.Project) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return objects.CreateObjects(ctx, house, &store.Object{ObjectKey: key(p.ID), CreatedAt: p.CreatedAt, Body: body})
}

// Get returns a project, which is active if nothing is kept of it.
func Get(ctx context.Context, objects store.Objects, id berth.ProjectID) (*berth.Project, error) {
	o, err := objects.GetObject(ctx, house, key(id))
	if errors.Is(err, store.ErrNotFound) {
		return active(id), nil
	}
	if err != nil {
		return nil, err
	}
	return decode(o)
}

func decode(o *store.Object) (*berth.Project, error) {
	p := &berth.Project{}
	return p, json.Unmarshal(o.Body, p)
}

// List returns the projects of which something is kept, the oldest first.
func List(ctx context.Context, objects store.Objects) ([]*berth.Project, error) {
	var all []*berth.Project
	for page := (store.Page{Limit: 1000, Ascending: true}); ; {
		list, more, err := objects.ListObjects(ctx, house, Kind, "", page)
		if err != nil {
			return nil, err
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

// Archive ends a project: its keys are refused from now on.
func Archive(ctx context.Context, objects store.Objects, id berth.ProjectID) (*berth.Project, error) {
	return update(ctx, objects, id, func(p *berth.Project) {
		if p.Status == berth.ProjectActive {
			now := time.Now().Unix()
			p.Status, p.ArchivedAt = berth.ProjectArchived, &now
		}
	})
}

// Erased notes that an archived project has nothing any more.
func Erased(ctx context.Context, objects store.Objects, id berth.ProjectID) (*berth.Project, error) {
	return update(ctx, objects, id, func(p *berth.Project) {
		if now := time.Now().Unix(); p.Status == berth.ProjectArchived && p.ErasedAt == nil {
			p.ErasedAt = &now
		}
	})
}

// SetLimits gives a project those of the limits that are not nil, beside those that
// it has.
func SetLimits(ctx context.Context, objects store.Objects, id berth.ProjectID, limits berth.Limits) (*berth.Project, error) {
	return update(ctx, objects, id, func(p *berth.Project) { p.Limits = limits.Or(p.Limits) })
}

// ClearLimits takes a project's own limits away.
func ClearLimits(ctx context.Context, objects store.Objects, id berth.ProjectID) (*berth.Project, error) {
	return update(ctx, objects, id, func(p *berth.Project) { p.Limits = berth.Limits{} })
}

// update changes a project, and keeps it if nothing was kept of it before.
func update(ctx context.Context, objects store.Objects, id berth.ProjectID, change func(*berth.Project)) (*berth.Project, error) {
	p := active(id)
	p.CreatedAt = time.Now().Unix()
	change(p)
	if err := create(ctx, objects, p); !errors.Is(err, store.ErrExists) {
		return p, err
	}
	o, err := objects.UpdateObject(ctx, house, key(id), func(o *store.Object) error {
		p, err := decode(o)
		if err != nil {
			return err
		}
		change(p)
		o.Body, err = json.Marshal(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return decode(o)
}

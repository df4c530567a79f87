package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// Templates returns the templates of a project, the newest first.
func (d *Service) Templates(ctx context.Context, p berth.ProjectID) ([]*Template, error) {
	objects, _, err := d.Objects.ListObjects(ctx, p, store.KindE2BTemplate, "", store.Page{Limit: maxTemplates})
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	all := make([]*Template, 0, len(objects))
	for _, o := range objects {
		t, err := decodeInto[Template](o)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Named returns the template of a project with a name or an id, or nil.
func (d *Service) Named(ctx context.Context, p berth.ProjectID, name string) (*Template, error) {
	if idPattern.MatchString(name) {
		o, err := d.Objects.GetObject(ctx, p, templateKey(name))
		if err == nil {
			return decodeInto[Template](o)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("read template: %w", err)
		}
	}
	if name == "" {
		return nil, nil
	}
	all, err := d.Templates(ctx, p)
	if at := slices.IndexFunc(all, func(t *Template) bool { return t.Named(name) }); at >= 0 {
		return all[at], nil
	}
	return nil, err
}

// Template returns the template of a project with a name or an id, with or without a tag.
func (d *Service) Template(ctx context.Context, p berth.ProjectID, ref string) (*Template, error) {
	name, _, _ := strings.Cut(ref, ":")
	t, err := d.Named(ctx, p, name)
	if err == nil && t == nil {
		err = NotFound(ref)
	}
	return t, err
}

// Build returns a build of a template. A build on which no server works any more has failed.
func (d *Service) Build(ctx context.Context, p berth.ProjectID, template, id string) (*Build, error) {
	var b *Build
	for range 2 { // a build that is not in progress here and is saved as building may just have started, or ended
		if b = d.builds.get(p, id); b != nil && b.Template == template {
			return b, nil
		}
		o, err := d.Objects.GetObject(ctx, p, buildKey(template, id))
		if errors.Is(err, store.ErrNotFound) {
			return nil, berth.Errorf(berth.CodeNotFound, "Build '%s' not found.", rule.Clip(id))
		}
		if err != nil {
			return nil, fmt.Errorf("read build: %w", err)
		}
		if b, err = decodeInto[Build](o); err != nil || b.Status != StatusBuilding {
			return b, err
		}
	}
	lost, err := d.interrupted(ctx, b)
	if err != nil {
		return nil, err
	}
	if lost {
		b.interrupt(d.Clock.Now())
	}
	return b, nil
}

// Resolve returns the build that a name or an id with a tag selects in a project. It returns nil if
// the project has no such template, which may be one of the server.
func (d *Service) Resolve(ctx context.Context, p berth.ProjectID, ref string) (*Template, *Build, error) {
	name, tag, err := SplitRef("templateID", ref)
	if err != nil {
		return nil, nil, nil // not a template of a project; perhaps a digest
	}
	t, err := d.Named(ctx, p, name)
	if err != nil || t == nil {
		return nil, nil, err
	}
	id, ok := t.Tags[tag]
	if !ok && slices.Contains(t.Builds, tag) {
		id, ok = tag, true
	}
	if !ok {
		return nil, nil, noTag(name, tag)
	}
	b, err := d.Build(ctx, p, t.ID, id)
	if err == nil && b.Status != StatusReady {
		err = berth.Errorf(berth.CodeNotFound, "The build '%s' of template '%s' is not ready.", b.ID, name)
	}
	return t, b, err
}

// Add saves a build, with the template if it is new, and moves tags to the build if it is
// ready.
func (d *Service) Add(ctx context.Context, p berth.ProjectID, t *Template, b Build, tags []string) (*Template,
	error) {
	b.Template, b.Tags = t.ID, tags
	body, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode build: %w", err)
	}
	object := &store.Object{ObjectKey: buildKey(t.ID, b.ID), CreatedAt: b.CreatedAt / 1000, Body: body}
	if len(t.Builds) == 0 {
		all, err := d.Templates(ctx, p)
		if err != nil {
			return nil, err
		}
		if len(all) >= maxTemplates {
			return nil, berth.Errorf(berth.CodeInvalid, "The project has reached the limit of %d templates.",
				maxTemplates)
		}
		made := *t
		made.add(b)
		text, err := json.Marshal(made)
		if err != nil {
			return nil, fmt.Errorf("encode template: %w", err)
		}
		err = d.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: templateKey(t.ID), CreatedAt: t.CreatedAt / 1000,
			Body: text}, object)
		if err != nil {
			return nil, fmt.Errorf("save template: %w", err)
		}
		return &made, nil
	}
	if err := d.Objects.CreateObjects(ctx, p, object); err != nil {
		return nil, fmt.Errorf("save build: %w", err)
	}
	return d.Update(ctx, p, t.ID, func(t *Template) error { t.add(b); return nil })
}

// add adds a build, whose tags select it if it is ready.
func (t *Template) add(b Build) {
	t.Builds, t.UpdatedAt = append(t.Builds, b.ID), b.CreatedAt
	if b.Status == StatusReady {
		t.Tag(b.ID, b.Tags)
	}
}

// Tag makes tags select a build.
func (t *Template) Tag(build string, tags []string) {
	if t.Tags == nil {
		t.Tags = map[string]string{}
	}
	for _, tag := range tags {
		t.Tags[tag] = build
	}
}

// Update changes the record of a template.
func (d *Service) Update(ctx context.Context, p berth.ProjectID, id string,
	change func(*Template) error) (*Template, error) {
	var t *Template
	_, err := d.Objects.UpdateObject(ctx, p, templateKey(id), func(o *store.Object) (err error) {
		if t, err = decodeInto[Template](o); err != nil {
			return err
		}
		if err = change(t); err != nil {
			return err
		}
		o.Body, err = json.Marshal(t)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, NotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("save template: %w", err)
	}
	return t, nil
}

// Spawned counts a sandbox of a template. A failure only makes the count wrong.
func (d *Service) Spawned(ctx context.Context, p berth.ProjectID, id string) {
	_, err := d.Update(ctx, p, id, func(t *Template) error {
		t.Spawned, t.SpawnedAt = t.Spawned+1, d.Clock.Now().UnixMilli()
		return nil
	})
	if err != nil {
		d.Log.Warn("failed to count a sandbox of a template", "template", id, "project", p, "err", err)
	}
}

// prune deletes the oldest builds of a template that no tag selects.
func (d *Service) prune(ctx context.Context, p berth.ProjectID, t *Template) error {
	for _, id := range slices.Clone(t.Builds[:max(0, len(t.Builds)-maxBuilds)]) {
		tagged := false
		for _, of := range t.Tags {
			tagged = tagged || of == id
		}
		if tagged || d.builds.get(p, id) != nil {
			continue
		}
		b, err := d.Build(ctx, p, t.ID, id)
		if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return err
		}
		if b != nil {
			d.DropSnapshot(p, b.Snapshot)
			if err := d.Objects.DeleteObject(ctx, p, buildKey(t.ID, id)); err != nil &&
				!errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("delete build: %w", err)
			}
		}
		if _, err := d.Update(ctx, p, t.ID, func(t *Template) error {
			t.Builds = slices.DeleteFunc(t.Builds, func(one string) bool { return one == id })
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// Limits of the templates of a project.
const (
	maxTemplates = 1000
	maxBuilds    = 20 // of one template; older ones without a tag are deleted
	maxTags      = 100
)

// defaultTag is the tag of a build without another, and of a name without one.
const defaultTag = "default"

// The states of a build.
const (
	statusWaiting  = "waiting"
	statusBuilding = "building"
	statusReady    = "ready"
	statusError    = "error"
)

// A template is what sandboxes of a project start from: builds, each a snapshot, which tags name. A
// template with a source sandbox is a snapshot of E2B's API.
type template struct {
	ID        string            `json:"id"`
	Names     []string          `json:"names,omitempty"`
	Sandbox   string            `json:"sandbox,omitempty"` // the source of a snapshot
	CreatedAt int64             `json:"created_at"`        // Unix milliseconds
	UpdatedAt int64             `json:"updated_at"`
	Tags      map[string]string `json:"tags,omitempty"`   // build ids
	Builds    []string          `json:"builds,omitempty"` // ids, oldest first
	Spawned   int64             `json:"spawned,omitempty"`
	SpawnedAt int64             `json:"spawned_at,omitempty"`
}

// named reports whether a name, with or without a tag, is one of the template.
func (t *template) named(ref string) bool {
	name, _, _ := strings.Cut(ref, ":")
	return slices.Contains(t.Names, name)
}

// A build is one result of building a template.
type build struct {
	ID         string            `json:"id"`
	Template   string            `json:"template"`
	Status     string            `json:"status"`
	Tags       []string          `json:"tags,omitempty"` // that it gets when it is ready
	CreatedAt  int64             `json:"created_at"`     // Unix milliseconds
	EndedAt    int64             `json:"ended_at,omitempty"`
	BeatAt     int64             `json:"beat_at,omitempty"`   // when its server saved it last while it ran
	Server     string            `json:"server,omitempty"`    // that builds it, or has built it
	Container  berth.ContainerID `json:"container,omitempty"` // in which it is built; empty when that is deleted
	Snapshot   berth.SnapshotID  `json:"snapshot,omitempty"`
	Memory     bool              `json:"memory,omitempty"`       // the snapshot has the memory
	MemorySize string            `json:"memory_limit,omitempty"` // of its sandboxes
	CPUCount   int               `json:"cpu_count,omitempty"`
	MemoryMB   int64             `json:"memory_mb,omitempty"`
	Env        []string          `json:"env,omitempty"`
	User       string            `json:"user,omitempty"`
	Dir        string            `json:"dir,omitempty"`
	// that runs in the memory of the snapshot, or that sandboxes must start themselves
	Start  *startCommand `json:"start,omitempty"`
	Reason *reason       `json:"reason,omitempty"`
	Logs   []logEntry    `json:"logs,omitempty"`
}

// A startCommand is the start command of a template.
type startCommand struct {
	Command string `json:"command,omitempty"`
	Ready   string `json:"ready,omitempty"` // succeeds when the template is ready
	User    string `json:"user,omitempty"`
	Dir     string `json:"dir,omitempty"`
}

// A reason is why a build failed.
type reason struct {
	Message string     `json:"message"`
	Step    string     `json:"step,omitempty"`
	Logs    []logEntry `json:"logEntries"`
}

// A logEntry is a line of the log of a build.
type logEntry struct {
	Timestamp string `json:"timestamp"` // RFC 3339
	Level     string `json:"level"`     // debug, info, warn or error
	Message   string `json:"message"`
	Step      string `json:"step,omitempty"`
}

// newID returns an id that can be part of a host name.
func newID() string { return berth.NewID("") }

// newBuildID returns a random UUID, the form that E2B's OpenAPI document gives the ids of builds.
func newBuildID() string { return uuid.NewString() }

func templateKey(id string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindE2BTemplate, ID: "tmpl_" + id}
}

func buildKey(template, id string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindE2BBuild, Parent: "tmpl_" + template, ID: "tmplb_" + id}
}

var (
	idPattern   = regexp.MustCompile(`^[0-9a-f]{48}$`)
	namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,127}$`)
	tagPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
)

// splitRef splits the name, or the id, of a template from its tag. The name may be empty.
func splitRef(at, ref string) (name, tag string, err error) {
	name, tag, tagged := strings.Cut(ref, ":")
	if !tagged {
		tag = defaultTag
	}
	name = strings.ToLower(name)
	if name != "" && !namePattern.MatchString(name) {
		return "", "",
			berth.Invalid(at,
				"Invalid '%s': '%s' is not the name of a template. Expected letters, digits, '-', '_' and '.'.", at,
				rule.Clip(name))
	}
	if !tagPattern.MatchString(tag) {
		return "", "", berth.Invalid(at, "Invalid '%s': '%s' is not a tag.", at, rule.Clip(tag))
	}
	return name, tag, nil
}

func templateNotFound(ref string) error {
	return berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", rule.Clip(ref))
}

// decodeInto decodes the body of an object.
func decodeInto[T any](o *store.Object) (*T, error) {
	out := new(T)
	if err := json.Unmarshal(o.Body, out); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.Kind, o.ID, err)
	}
	return out, nil
}

// templates returns the templates of a project, the newest first.
func (d *Door) templates(ctx context.Context, p berth.ProjectID) ([]*template, error) {
	objects, _, err := d.Objects.ListObjects(ctx, p, store.KindE2BTemplate, "", store.Page{Limit: maxTemplates})
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	all := make([]*template, 0, len(objects))
	for _, o := range objects {
		t, err := decodeInto[template](o)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// namedTemplate returns the template of a project with a name or an id, or nil.
func (d *Door) namedTemplate(ctx context.Context, p berth.ProjectID, name string) (*template, error) {
	if idPattern.MatchString(name) {
		o, err := d.Objects.GetObject(ctx, p, templateKey(name))
		if err == nil {
			return decodeInto[template](o)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("read template: %w", err)
		}
	}
	if name == "" {
		return nil, nil
	}
	all, err := d.templates(ctx, p)
	if at := slices.IndexFunc(all, func(t *template) bool { return t.named(name) }); at >= 0 {
		return all[at], nil
	}
	return nil, err
}

// mustTemplate returns the template of a project with a name or an id, with or without a tag.
func (d *Door) mustTemplate(ctx context.Context, p berth.ProjectID, ref string) (*template, error) {
	name, _, _ := strings.Cut(ref, ":")
	t, err := d.namedTemplate(ctx, p, name)
	if err == nil && t == nil {
		err = templateNotFound(ref)
	}
	return t, err
}

// readBuild returns a build of a template. A build on which no server works any more has failed.
func (d *Door) readBuild(ctx context.Context, p berth.ProjectID, template, id string) (*build, error) {
	var b *build
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
		if b, err = decodeInto[build](o); err != nil || b.Status != statusBuilding {
			return b, err
		}
	}
	lost, err := d.interrupted(ctx, b)
	if err != nil {
		return nil, err
	}
	if lost {
		b.interrupt(d.Now())
	}
	return b, nil
}

// resolve returns the build that a name or an id with a tag selects in a project. It returns nil if
// the project has no such template, which may be one of the server.
func (d *Door) resolve(ctx context.Context, p berth.ProjectID, ref string) (*template, *build, error) {
	name, tag, err := splitRef("templateID", ref)
	if err != nil {
		return nil, nil, nil // not a template of a project; perhaps a digest
	}
	t, err := d.namedTemplate(ctx, p, name)
	if err != nil || t == nil {
		return nil, nil, err
	}
	id, ok := t.Tags[tag]
	if !ok && slices.Contains(t.Builds, tag) {
		id, ok = tag, true
	}
	if !ok {
		return nil, nil, berth.Errorf(berth.CodeNotFound, "Template '%s' has no build with the tag '%s'.", name,
			rule.Clip(tag))
	}
	b, err := d.readBuild(ctx, p, t.ID, id)
	if err == nil && b.Status != statusReady {
		err = berth.Errorf(berth.CodeNotFound, "The build '%s' of template '%s' is not ready.", b.ID, name)
	}
	return t, b, err
}

// addBuild saves a build, with the template if it is new, and moves tags to the build if it is
// ready.
func (d *Door) addBuild(ctx context.Context, p berth.ProjectID, t *template, b build, tags []string) (*template,
	error) {
	b.Template, b.Tags = t.ID, tags
	body, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode build: %w", err)
	}
	object := &store.Object{ObjectKey: buildKey(t.ID, b.ID), CreatedAt: b.CreatedAt / 1000, Body: body}
	if len(t.Builds) == 0 {
		all, err := d.templates(ctx, p)
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
	return d.updateTemplate(ctx, p, t.ID, func(t *template) error { t.add(b); return nil })
}

// add adds a build, whose tags select it if it is ready.
func (t *template) add(b build) {
	t.Builds, t.UpdatedAt = append(t.Builds, b.ID), b.CreatedAt
	if b.Status == statusReady {
		t.tag(b.ID, b.Tags)
	}
}

// tag makes tags select a build.
func (t *template) tag(build string, tags []string) {
	if t.Tags == nil {
		t.Tags = map[string]string{}
	}
	for _, tag := range tags {
		t.Tags[tag] = build
	}
}

// updateTemplate changes the record of a template.
func (d *Door) updateTemplate(ctx context.Context, p berth.ProjectID, id string,
	change func(*template) error) (*template, error) {
	var t *template
	_, err := d.Objects.UpdateObject(ctx, p, templateKey(id), func(o *store.Object) (err error) {
		if t, err = decodeInto[template](o); err != nil {
			return err
		}
		if err = change(t); err != nil {
			return err
		}
		o.Body, err = json.Marshal(t)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, templateNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("save template: %w", err)
	}
	return t, nil
}

// spawned counts a sandbox of a template. A failure only makes the count wrong.
func (d *Door) spawned(ctx context.Context, p berth.ProjectID, id string) {
	_, err := d.updateTemplate(ctx, p, id, func(t *template) error {
		t.Spawned, t.SpawnedAt = t.Spawned+1, d.Now().UnixMilli()
		return nil
	})
	if err != nil {
		d.Log.Warn("failed to count a sandbox of a template", "template", id, "project", p, "err", err)
	}
}

// prune deletes the oldest builds of a template that no tag selects.
func (d *Door) prune(ctx context.Context, p berth.ProjectID, t *template) error {
	for _, id := range slices.Clone(t.Builds[:max(0, len(t.Builds)-maxBuilds)]) {
		tagged := false
		for _, of := range t.Tags {
			tagged = tagged || of == id
		}
		if tagged || d.builds.get(p, id) != nil {
			continue
		}
		b, err := d.readBuild(ctx, p, t.ID, id)
		if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return err
		}
		if b != nil {
			d.dropSnapshot(p, b.Snapshot)
			if err := d.Objects.DeleteObject(ctx, p, buildKey(t.ID, id)); err != nil &&
				!errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("delete build: %w", err)
			}
		}
		if _, err := d.updateTemplate(ctx, p, t.ID, func(t *template) error {
			t.Builds = slices.DeleteFunc(t.Builds, func(one string) bool { return one == id })
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// Package prompts stores prompts with their versions. A version that a change replaced stays.
package prompts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// maxVersions is the maximum number of versions in a list.
const maxVersions = 10_000

// A Store stores prompts. It is safe for concurrent use.
type Store struct{ objects store.Objects }

// New returns a store of prompts.
func New(objects store.Objects) *Store { return &Store{objects} }

func keyOf(id berth.PromptID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindPrompt, ID: string(id)}
}

// versionKey returns the key of a replaced version. Its parent is the prompt, and its id is the number of the version.
func versionKey(id berth.PromptID, version string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindPromptVersion, Parent: string(id), ID: version}
}

// clientError returns the client's error for a prompt that does not exist.
func clientError(id berth.PromptID, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &berth.Error{Code: berth.CodeNotFound, Wire: "prompt_not_found",
			Message: "Prompt with id '" + rule.Clip(string(id)) + "' not found."}
	}
	return err
}

func decode(o *store.Object) (*berth.Prompt, error) {
	var p berth.Prompt
	if err := json.Unmarshal(o.Body, &p); err != nil {
		return nil, fmt.Errorf("decode prompt: %w", err)
	}
	return &p, nil
}

// Create stores a prompt.
func (s *Store) Create(ctx context.Context, project berth.ProjectID, p *berth.Prompt) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode prompt: %w", err)
	}
	o := &store.Object{ObjectKey: keyOf(p.ID), CreatedAt: p.CreatedAt, Body: body}
	if err := s.objects.CreateObjects(ctx, project, o); err != nil {
		return fmt.Errorf("store prompt: %w", err)
	}
	return nil
}

// A Change changes a prompt. What is zero stays.
type Change struct {
	Name     string
	Metadata map[string]string

	Template  json.RawMessage // makes a new version
	Variables []string        // of Template
}

// errOvertaken means that another request has changed the prompt first.
var errOvertaken = errors.New("another request has changed the prompt")

// Update changes a prompt. A new template makes a new version.
func (s *Store) Update(ctx context.Context, project berth.ProjectID, id berth.PromptID,
	change Change) (*berth.Prompt, error) {
	for {
		o, err := s.objects.GetObject(ctx, project, keyOf(id))
		if err != nil {
			return nil, clientError(id, err)
		}
		p, err := s.change(ctx, project, o, change)
		if errors.Is(err, errOvertaken) {
			continue
		}
		if err != nil {
			return nil, clientError(id, err)
		}
		return p, nil
	}
}

// change stores the current version as an old one, then replaces it. It returns
// errOvertaken if the prompt is no longer the same as old.
func (s *Store) change(ctx context.Context, project berth.ProjectID, old *store.Object,
	change Change) (*berth.Prompt, error) {
	p, err := decode(old)
	if err != nil {
		return nil, err
	}
	if change.Name != "" {
		p.Name = change.Name
	}
	if change.Metadata != nil {
		p.Metadata = change.Metadata
	}
	if change.Template != nil {
		kept := &store.Object{ObjectKey: versionKey(p.ID, p.Version), CreatedAt: old.CreatedAt, Body: old.Body}
		if err := s.objects.CreateObjects(ctx, project, kept); err != nil && !errors.Is(err, store.ErrExists) {
			return nil, fmt.Errorf("keep version: %w", err)
		}
		n, err := strconv.Atoi(p.Version)
		if err != nil {
			return nil, fmt.Errorf("version: %w", err)
		}
		p.Version, p.Template, p.Variables = strconv.Itoa(n+1), change.Template, change.Variables
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode prompt: %w", err)
	}
	_, err = s.objects.UpdateObject(ctx, project, old.ObjectKey, func(o *store.Object) error {
		if !bytes.Equal(o.Body, old.Body) {
			return errOvertaken
		}
		o.Body = body
		return nil
	})
	return p, err
}

// Find returns a version of a prompt. An empty version means the newest.
func (s *Store) Find(ctx context.Context, project berth.ProjectID, id berth.PromptID,
	version string) (*berth.Prompt, error) {
	o, err := s.objects.GetObject(ctx, project, keyOf(id))
	if err != nil {
		return nil, clientError(id, err)
	}
	p, err := decode(o)
	if err != nil || version == "" || version == p.Version {
		return p, err
	}
	o, err = s.objects.GetObject(ctx, project, versionKey(id, version))
	if errors.Is(err, store.ErrNotFound) {
		return nil, &berth.Error{Code: berth.CodeNotFound, Wire: "prompt_not_found",
			Message: fmt.Sprintf("Prompt with id '%s' has no version '%s'.", rule.Clip(string(id)), rule.Clip(version))}
	}
	if err != nil {
		return nil, fmt.Errorf("read version: %w", err)
	}
	return decode(o)
}

// List returns a page of the newest versions of prompts, and whether there are more.
func (s *Store) List(ctx context.Context, project berth.ProjectID, page berth.Page) ([]*berth.Prompt, bool, error) {
	objects, more, err := s.objects.ListObjects(ctx, project, store.KindPrompt, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list prompts: %w", err)
	}
	list, err := decodeAll(objects)
	return list, more, err
}

func decodeAll(objects []*store.Object) ([]*berth.Prompt, error) {
	list := make([]*berth.Prompt, len(objects))
	for i, o := range objects {
		var err error
		if list[i], err = decode(o); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Versions returns the versions of a prompt, the newest one last.
func (s *Store) Versions(ctx context.Context, project berth.ProjectID, id berth.PromptID) ([]*berth.Prompt, error) {
	newest, err := s.Find(ctx, project, id, "")
	if err != nil {
		return nil, err
	}
	objects, _, err := s.objects.ListObjects(ctx, project, store.KindPromptVersion, string(id),
		berth.Page{Limit: maxVersions, Ascending: true})
	if err != nil {
		return nil, fmt.Errorf("list versions: %w", err)
	}
	// An interrupted change has left it.
	objects = slices.DeleteFunc(objects, func(o *store.Object) bool { return o.ID == newest.Version })
	list, err := decodeAll(objects)
	return append(list, newest), err
}

// Delete deletes a prompt with its versions. It does not change responses that used the prompt.
func (s *Store) Delete(ctx context.Context, project berth.ProjectID, id berth.PromptID) error {
	return clientError(id, s.objects.DeleteObject(ctx, project, keyOf(id)))
}

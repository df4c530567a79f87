// Package completions stores the chat completions that clients asked to store, each with the messages of its request.
package completions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A Document is a stored completion, or a message of its request, as clients see it.
type Document struct {
	ID   string
	Body json.RawMessage
}

// A Store stores completions. It is safe for concurrent use.
type Store struct{ objects store.Objects }

// New returns a store of completions.
func New(objects store.Objects) *Store { return &Store{objects} }

func keyOf(id string) store.ObjectKey { return store.ObjectKey{Kind: store.KindCompletion, ID: id} }

// clientError returns the client's error for a completion that does not exist.
func clientError(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Chat completion", rule.Clip(id))
	}
	return err
}

// Create stores a completion and the messages of its request.
func (s *Store) Create(ctx context.Context, p berth.ProjectID, createdAt int64, completion Document,
	messages []Document) error {
	objects := []*store.Object{{ObjectKey: keyOf(completion.ID), CreatedAt: createdAt, Body: completion.Body}}
	for _, m := range messages {
		key := store.ObjectKey{Kind: store.KindCompletionMessage, Parent: completion.ID, ID: m.ID}
		objects = append(objects, &store.Object{ObjectKey: key, CreatedAt: createdAt, Body: m.Body})
	}
	if err := s.objects.CreateObjects(ctx, p, objects...); err != nil {
		return fmt.Errorf("store completion: %w", err)
	}
	return nil
}

// Get returns a completion.
func (s *Store) Get(ctx context.Context, p berth.ProjectID, id string) (json.RawMessage, error) {
	o, err := s.objects.GetObject(ctx, p, keyOf(id))
	if err != nil {
		return nil, clientError(err, id)
	}
	return o.Body, nil
}

// Update changes a completion.
func (s *Store) Update(ctx context.Context, p berth.ProjectID, id string,
	change func(json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	o, err := s.objects.UpdateObject(ctx, p, keyOf(id), func(o *store.Object) (err error) {
		o.Body, err = change(o.Body)
		return err
	})
	if err != nil {
		return nil, clientError(err, id)
	}
	return o.Body, nil
}

// Delete deletes a completion and the messages of its request.
func (s *Store) Delete(ctx context.Context, p berth.ProjectID, id string) error {
	return clientError(s.objects.DeleteObject(ctx, p, keyOf(id)), id)
}

// List returns a page of the completions for which fits is true, and whether there are more. A nil fits means all.
func (s *Store) List(ctx context.Context, p berth.ProjectID, page berth.Page,
	fits func(json.RawMessage) bool) ([]Document, bool, error) {
	if fits == nil {
		return s.list(ctx, p, store.KindCompletion, "", page)
	}
	var found []Document
	most := page.Limit
	for {
		page.Limit = 100
		list, more, err := s.list(ctx, p, store.KindCompletion, "", page)
		if err != nil {
			return nil, false, err
		}
		for _, one := range list {
			if !fits(one.Body) {
				continue
			}
			if len(found) == most {
				return found, true, nil
			}
			found = append(found, one)
		}
		if !more || len(list) == 0 {
			return found, false, nil
		}
		page.After = list[len(list)-1].ID
	}
}

// Messages returns a page of the messages of a completion's request, and whether there are more.
func (s *Store) Messages(ctx context.Context, p berth.ProjectID, id string, page berth.Page) ([]Document, bool, error) {
	if _, err := s.Get(ctx, p, id); err != nil {
		return nil, false, err
	}
	list, more, err := s.list(ctx, p, store.KindCompletionMessage, id, page)
	if errors.Is(err, store.ErrNotFound) && page.After != "" {
		err = berth.Invalid("after", "Invalid 'after': no object with id '%s' in this list.", rule.Clip(page.After))
	}
	return list, more, err
}

func (s *Store) list(ctx context.Context, p berth.ProjectID, kind store.Kind, parent string,
	page berth.Page) ([]Document, bool, error) {
	objects, more, err := s.objects.ListObjects(ctx, p, kind, parent, page)
	if err != nil {
		return nil, false, err
	}
	list := make([]Document, len(objects))
	for i, o := range objects {
		list[i] = Document{o.ID, o.Body}
	}
	return list, more, nil
}

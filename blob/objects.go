package blob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// Objects are records stored as objects of one kind, with a JSON document of type T. They
// implement Records.
type Objects[T any] struct {
	Store store.Objects
	Kind  store.Kind

	// Clock makes Get and List omit records that have expired by it and are not deleted yet. If it is nil, they are
	// not omitted.
	Clock clock.Clock
}

func (o Objects[T]) key(id string) store.ObjectKey { return store.ObjectKey{Kind: o.Kind, ID: id} }

// Create saves a record. A nil expires means that it never expires.
func (o Objects[T]) Create(ctx context.Context, r Ref, created int64, expires *int64, record *T) error {
	body, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", o.Kind, r.ID, err)
	}
	object := &store.Object{ObjectKey: o.key(r.ID), CreatedAt: created, Body: body}
	if expires != nil {
		object.ExpiresAt = *expires
	}
	return o.Store.CreateObjects(ctx, r.Project, object)
}

// Get returns a record, or store.ErrNotFound.
func (o Objects[T]) Get(ctx context.Context, r Ref) (*T, error) {
	object, err := o.Store.GetObject(ctx, r.Project, o.key(r.ID))
	if err != nil {
		return nil, err
	}
	if o.hidden(object) {
		return nil, store.ErrNotFound
	}
	return o.decode(object)
}

// List returns one page of records and whether there is more. For an unknown page.After it
// returns store.ErrNotFound.
func (o Objects[T]) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*T, bool, error) {
	objects, more, err := o.Store.ListObjects(ctx, p, o.Kind, "", page)
	if err != nil {
		return nil, false, err
	}
	list := make([]*T, 0, len(objects))
	for _, object := range objects {
		record, err := o.decode(object)
		if err != nil {
			return nil, false, err
		}
		if !o.hidden(object) {
			list = append(list, record)
		}
	}
	return list, more, nil
}

// All yields the records of a project, including expired ones.
func (o Objects[T]) All(ctx context.Context, p berth.ProjectID) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for page := (store.Page{Limit: 1000}); ; {
			objects, more, err := o.Store.ListObjects(ctx, p, o.Kind, "", page)
			if err != nil {
				yield(nil, fmt.Errorf("list %ss of %s: %w", o.Kind, p, err))
				return
			}
			for _, object := range objects {
				if record, err := o.decode(object); !yield(record, err) || err != nil {
					return
				}
				page.After = object.ID
			}
			if !more {
				return
			}
		}
	}
}

// Extend moves the expiry of a record that expires before until to until, even if it has
// expired and is not deleted yet. It returns store.ErrNotFound if the record does not exist.
func (o Objects[T]) Extend(ctx context.Context, r Ref, until time.Time) error {
	_, err := o.Store.UpdateObject(ctx, r.Project, o.key(r.ID), func(object *store.Object) error {
		if object.ExpiresAt != 0 {
			object.ExpiresAt = max(object.ExpiresAt, until.Unix())
		}
		return nil
	})
	return err
}

// Delete deletes a record.
func (o Objects[T]) Delete(ctx context.Context, r Ref) error {
	return o.Store.DeleteObject(ctx, r.Project, o.key(r.ID))
}

// Exists reports whether a record exists, including an expired one.
func (o Objects[T]) Exists(ctx context.Context, r Ref) (bool, error) {
	_, err := o.Store.GetObject(ctx, r.Project, o.key(r.ID))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Expired returns up to limit records, of all projects, that have expired by now.
func (o Objects[T]) Expired(ctx context.Context, now time.Time, limit int) ([]Ref, error) {
	objects, err := o.Store.ExpiredObjects(ctx, o.Kind, now, limit)
	refs := make([]Ref, len(objects))
	for i, object := range objects {
		refs[i] = Ref{object.Project, object.ID}
	}
	return refs, err
}

func (o Objects[T]) hidden(object *store.Object) bool {
	return o.Clock != nil && object.ExpiresAt != 0 && object.ExpiresAt <= o.Clock.Now().Unix()
}

func (o Objects[T]) decode(object *store.Object) (*T, error) {
	record := new(T)
	if err := json.Unmarshal(object.Body, record); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.Kind, object.ID, err)
	}
	return record, nil
}

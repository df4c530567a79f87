package project

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// erasePage is the number of deletions that a Source returns at a time.
const erasePage = 100

// A Source returns at most limit deletions of a project's data of one kind. Each deletes
// one object; if it is gone already, the error is ignored. An empty list means that no
// object is left.
type Source func(ctx context.Context, p berth.ProjectID, limit int) ([]func() error, error)

// NewSource returns a Source that removes the objects of list.
func NewSource[T any](list func(ctx context.Context, p berth.ProjectID, limit int) ([]T, error),
	remove func(ctx context.Context, p berth.ProjectID, one T) error) Source {
	return func(ctx context.Context, p berth.ProjectID, limit int) ([]func() error, error) {
		all, err := list(ctx, p, limit)
		deletions := make([]func() error, len(all))
		for i, one := range all {
			deletions[i] = func() error { return remove(ctx, p, one) }
		}
		return deletions, err
	}
}

// An Eraser deletes the data of archived projects.
type Eraser struct {
	Projects *Service
	Sources  []Source // all data of a project, in the order in which it is deleted
	Audit    Auditor

	// Held returns an error if the data of a project must not be deleted now. Nil: nothing is held.
	Held func(ctx context.Context, p berth.ProjectID) error
}

// EraseArchived erases the archived projects that have not been erased. A project that
// fails does not stop the others.
func (e *Eraser) EraseArchived(ctx context.Context) error {
	all, err := e.Projects.List(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, p := range all {
		if p.Status != berth.ProjectArchived || p.ErasedAt != nil {
			continue
		}
		if e.Held != nil {
			if err := e.Held(ctx, p.ID); berth.ErrorCode(err) == berth.CodeConflict {
				continue // until the hold is released
			} else if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
		}
		n, err := e.Erase(ctx, p.ID)
		if err == nil {
			err = e.Audit.Commit(ctx, audit.Entry{Action: audit.ProjectErased, Project: p.ID, Reason: "archived",
				Count: n})
		}
		if err == nil {
			err = e.Projects.markErased(ctx, p.ID)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("erase project %s: %w", p.ID, err))
		}
	}
	return failed
}

// Erase deletes the data of a project, except its record and its usage. It returns the
// number of deleted objects.
func (e *Eraser) Erase(ctx context.Context, p berth.ProjectID) (deleted int64, err error) {
	for _, source := range e.Sources {
		for {
			n, err := eraseSome(ctx, p, source)
			deleted += n
			if err != nil {
				return deleted, err
			}
			if n == 0 {
				break
			}
		}
	}
	return deleted, nil
}

// eraseSome deletes up to erasePage objects of a source.
func eraseSome(ctx context.Context, p berth.ProjectID, source Source) (deleted int64, err error) {
	deletions, err := source(ctx, p, erasePage)
	if err != nil {
		return 0, err
	}
	for _, remove := range deletions {
		err := remove()
		if berth.ErrorCode(err) == berth.CodeNotFound || errors.Is(err, store.ErrNotFound) {
			continue // such as a response with store: false, which is deleted when it ends
		}
		if err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}

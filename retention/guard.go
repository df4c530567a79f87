package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// guarded are the kinds of objects that holds protect. Others are the means of services, such as leases and queues.
// Responses and containers are checked by the services that delete them, which end something first.
var guarded = map[store.Kind]bool{
	store.KindConversation: true, store.KindConversationItem: true,
	store.KindCompletion: true, store.KindCompletionMessage: true,
	store.KindAssistant: true, store.KindThread: true, store.KindMessage: true, store.KindRun: true,
	store.KindPrompt: true, store.KindPromptVersion: true,
	store.KindSnapshot: true, store.KindVolume: true, store.KindContainerLog: true,
	store.KindVectorStore: true, store.KindVectorFile: true,
	store.KindBatch: true,
	store.KindSkill: true, store.KindSkillVersion: true,
	store.KindTrace: true, store.KindTraceSpan: true,
	store.KindEndUser: true, store.KindEndUserLink: true,
}

// A Guard is a store that refuses to delete held objects.
type Guard struct {
	store.Store
	holds *Holds
}

// NewGuard returns a guard of a store.
func NewGuard(below store.Store, holds *Holds) *Guard { return &Guard{below, holds} }

// DeleteObject implements store.Objects.
func (g *Guard) DeleteObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey) error {
	if key.Kind == store.KindHold {
		return fmt.Errorf("hold %s can only be released", key.ID)
	}
	if guarded[key.Kind] {
		if err := g.check(ctx, p, key); err != nil {
			return err
		}
	}
	return g.Store.DeleteObject(ctx, p, key)
}

// check returns an error if an object is held.
func (g *Guard) check(ctx context.Context, p berth.ProjectID, key store.ObjectKey) error {
	ids := []string{key.ID, key.Parent}
	if key.Kind == store.KindSnapshot {
		more, err := g.origin(ctx, p, key)
		if err != nil {
			return err
		}
		ids = append(ids, more...)
	}
	return g.holds.Check(ctx, p, ids...)
}

// origin returns the container and the end user of a snapshot: both may be held after the container is gone.
func (g *Guard) origin(ctx context.Context, p berth.ProjectID, key store.ObjectKey) ([]string, error) {
	o, err := g.Store.GetObject(ctx, p, key)
	if err != nil {
		return nil, err
	}
	var of struct{ Snapshot berth.Snapshot } // of a snapshot.Record
	if err := json.Unmarshal(o.Body, &of); err != nil {
		return nil, fmt.Errorf("decode snapshot %s: %w", key.ID, err)
	}
	return []string{string(of.Snapshot.ContainerID), string(of.Snapshot.EndUser)}, nil
}

// DeleteFile implements store.Files.
func (g *Guard) DeleteFile(ctx context.Context, p berth.ProjectID, id berth.FileID) error {
	if err := g.holds.Check(ctx, p, string(id)); err != nil {
		return err
	}
	return g.Store.DeleteFile(ctx, p, id)
}

// ExpiredObjects implements store.Objects: it omits held objects, which their expiry does not end.
func (g *Guard) ExpiredObjects(ctx context.Context, kind store.Kind, now time.Time, limit int) ([]store.ObjectRef,
	error) {
	if !guarded[kind] {
		return g.Store.ExpiredObjects(ctx, kind, now, limit)
	}
	return unheld(limit, func(n int) ([]store.ObjectRef, error) {
		return g.Store.ExpiredObjects(ctx, kind, now, n)
	}, func(r store.ObjectRef) error { return g.check(ctx, r.Project, r.ObjectKey) })
}

// ExpiredFiles implements store.Files, as ExpiredObjects.
func (g *Guard) ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]store.FileRef, error) {
	return unheld(limit, func(n int) ([]store.FileRef, error) {
		return g.Store.ExpiredFiles(ctx, now, n)
	}, func(r store.FileRef) error { return g.holds.Check(ctx, r.Project, string(r.File)) })
}

// unheld returns up to limit refs that are not held. It reads twice as many as long as there are more.
func unheld[T any](limit int, read func(limit int) ([]T, error), check func(T) error) ([]T, error) {
	for n := limit; ; n *= 2 {
		refs, err := read(n)
		if err != nil {
			return nil, err
		}
		free := make([]T, 0, min(len(refs), limit))
		for _, r := range refs {
			switch err := check(r); {
			case err == nil:
				free = append(free, r)
			case !IsHeld(err) && berth.ErrorCode(err) != berth.CodeNotFound && !isGone(err):
				return nil, err
			}
			if len(free) == limit {
				return free, nil
			}
		}
		if len(refs) < n {
			return free, nil
		}
	}
}

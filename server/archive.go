package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// An emptier removes what archived projects have.
type emptier struct {
	objects    store.Objects
	projects   store.Projects
	containers interface {
		List(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*berth.Container, bool, error)
		Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
	}
	responses interface {
		Delete(ctx context.Context, c berth.Caller, id berth.ResponseID) error
	}
	files interface {
		List(ctx context.Context, p berth.ProjectID, purpose string, page store.Page) ([]*berth.File, bool, error)
		Delete(ctx context.Context, p berth.ProjectID, id berth.FileID) error
	}
	snapshots *snapshot.Service
	volumes   *volume.Service
	audit     *audit.Log
	log       *slog.Logger
}

// start empties archived projects from now on. stop waits for its end.
func (e *emptier) start() (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			if err := e.emptyAll(ctx); err != nil && ctx.Err() == nil {
				e.log.Error("an archived project was not emptied; this will be tried again", "err", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func(context.Context) error {
		cancel()
		wg.Wait()
		return nil
	}
}

// emptyAll empties the archived projects that have not been.
func (e *emptier) emptyAll(ctx context.Context) error {
	all, err := project.List(ctx, e.objects)
	if err != nil {
		return err
	}
	var failed error
	for _, p := range all {
		if p.Status != berth.ProjectArchived || p.ErasedAt != nil {
			continue
		}
		n, err := e.empty(ctx, p.ID)
		if err == nil {
			err = e.audit.Commit(ctx, audit.Entry{Action: audit.ProjectErased, Project: p.ID, Reason: "archived", Count: n})
		}
		if err == nil {
			_, err = project.Erased(ctx, e.objects, p.ID)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// emptyPage is how many things are asked for at once.
const emptyPage = 100

// empty removes all that a project has but the record of what it was and used, and
// returns how many things that were.
func (e *emptier) empty(ctx context.Context, p berth.ProjectID) (removed int64, err error) {
	page := store.Page{Limit: emptyPage, Ascending: true}
	caller := berth.Caller{Project: p}
	for _, list := range []func() ([]func() error, error){
		func() ([]func() error, error) { // first: they use the others
			list, _, err := e.containers.List(ctx, p, "", page)
			return deletions(list, func(c *berth.Container) error { return e.containers.Delete(ctx, p, c.ID) }), err
		},
		func() ([]func() error, error) {
			list, _, err := e.snapshots.List(ctx, p, page)
			return deletions(list, func(s *berth.Snapshot) error { return e.snapshots.Delete(ctx, p, s.ID) }), err
		},
		func() ([]func() error, error) {
			list, _, err := e.volumes.List(ctx, p, page)
			return deletions(list, func(v *berth.Volume) error { return e.volumes.Delete(ctx, caller, v.ID) }), err
		},
		func() ([]func() error, error) {
			list, _, err := e.files.List(ctx, p, "", page)
			return deletions(list, func(f *berth.File) error { return e.files.Delete(ctx, p, f.ID) }), err
		},
		func() ([]func() error, error) {
			list, err := e.projects.ProjectResponses(ctx, p, emptyPage)
			return deletions(list, func(id berth.ResponseID) error { return e.responses.Delete(ctx, caller, id) }), err
		},
		func() ([]func() error, error) {
			list, err := e.projects.ProjectObjects(ctx, p, emptyPage)
			return deletions(list, func(key store.ObjectKey) error { return e.objects.DeleteObject(ctx, p, key) }), err
		},
	} {
		for {
			todo, err := list()
			if err != nil {
				return removed, err
			}
			before := removed
			for _, remove := range todo {
				err := remove()
				if berth.ErrorCode(err) == berth.CodeNotFound || errors.Is(err, store.ErrNotFound) {
					continue // a response that is not kept goes with its end
				}
				if err != nil {
					return removed, err
				}
				removed++
			}
			if removed == before {
				break
			}
		}
	}
	return removed, nil
}

// deletions returns what is to be done with each of a list.
func deletions[T any](list []T, do func(T) error) []func() error {
	todo := make([]func() error, len(list))
	for i, one := range list {
		todo[i] = func() error { return do(one) }
	}
	return todo
}

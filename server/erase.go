package server

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// erasable holds the services that delete the data of projects.
type erasable struct {
	db         projectStore
	containers containerRemover
	responses  responseRemover
	blobs      *blobs
}

type (
	projectStore interface {
		store.Objects
		store.Projects
	}
	containerRemover interface {
		List(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*berth.Container, bool, error)
		Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
	}
	responseRemover interface {
		Delete(ctx context.Context, c berth.Caller, id berth.ResponseID) error
	}
)

// sources returns the sources of all data of a project. Containers come first, because they use the others.
func (e *erasable) sources() []project.Source {
	page := func(limit int) store.Page { return store.Page{Limit: limit, Ascending: true} }
	return []project.Source{
		project.NewSource(func(ctx context.Context, p berth.ProjectID, limit int) ([]*berth.Container, error) {
			list, _, err := e.containers.List(ctx, p, "", page(limit))
			return list, err
		}, func(ctx context.Context, p berth.ProjectID, c *berth.Container) error {
			return e.containers.Delete(ctx, p, c.ID)
		}),
		project.NewSource(func(ctx context.Context, p berth.ProjectID, limit int) ([]*berth.Snapshot, error) {
			list, _, err := e.blobs.snapshots.List(ctx, p, page(limit))
			return list, err
		}, func(ctx context.Context, p berth.ProjectID, s *berth.Snapshot) error {
			return e.blobs.snapshots.Delete(ctx, p, s.ID)
		}),
		project.NewSource(func(ctx context.Context, p berth.ProjectID, limit int) ([]*berth.Volume, error) {
			list, _, err := e.blobs.volumes.List(ctx, p, page(limit))
			return list, err
		}, func(ctx context.Context, p berth.ProjectID, v *berth.Volume) error {
			return e.blobs.volumes.Delete(ctx, berth.Caller{Project: p}, v.ID)
		}),
		project.NewSource(func(ctx context.Context, p berth.ProjectID, limit int) ([]berth.UploadID, error) {
			return e.blobs.uploads.List(ctx, p, limit)
		}, func(ctx context.Context, p berth.ProjectID, id berth.UploadID) error {
			return e.blobs.uploads.Delete(ctx, p, id)
		}),
		project.NewSource(func(ctx context.Context, p berth.ProjectID, limit int) ([]*berth.Skill, error) {
			list, _, err := e.blobs.skills.List(ctx, p, page(limit))
			return list, err
		}, func(ctx context.Context, p berth.ProjectID, s *berth.Skill) error {
			return e.blobs.skills.Delete(ctx, p, s.ID)
		}),
		project.NewSource(e.blobs.skills.Staged, e.blobs.skills.DeleteStaged),
		project.NewSource(func(ctx context.Context, p berth.ProjectID, limit int) ([]*berth.File, error) {
			list, _, err := e.blobs.files.List(ctx, p, "", page(limit))
			return list, err
		}, func(ctx context.Context, p berth.ProjectID, f *berth.File) error {
			return e.blobs.files.Delete(ctx, p, f.ID)
		}),
		project.NewSource(e.db.ProjectResponses, func(ctx context.Context, p berth.ProjectID,
			id berth.ResponseID) error {
			return e.responses.Delete(ctx, berth.Caller{Project: p}, id)
		}),
		project.NewSource(e.db.ProjectObjects, e.db.DeleteObject),
	}
}

// startErasing erases archived projects in the background.
func startErasing(b *base, eraser *project.Eraser) (stop func(context.Context) error) {
	log := b.Log
	return b.startOneWorker("projects", 0, sweepInterval, func(ctx context.Context) {
		if err := eraser.EraseArchived(ctx); err != nil && ctx.Err() == nil {
			log.Error("failed to erase archived projects; will retry", "err", err)
		}
	})
}

// scrubEvery is how often erased keys are removed from the files of a database that retains them.
const scrubEvery = time.Hour

// startScrubbing removes erased keys from the files of the database in the background.
func (s *Server) startScrubbing(b *base) {
	db, retains := b.disk.(interface{ Scrub(context.Context) error })
	if !retains {
		return
	}
	s.later(b.startOneWorker("keys", scrubEvery, scrubEvery, func(ctx context.Context) {
		if err := db.Scrub(ctx); err != nil && ctx.Err() == nil {
			b.Log.Error("failed to rewrite the table of keys without the erased ones; will retry", "err", err)
		}
	}))
}

package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/project"
)

// builtAreas are the areas of what builds of templates store.
var builtAreas = []diskspace.Area{diskspace.Images, diskspace.Snapshots, diskspace.Files}

// reclaim removes what builds of templates can make again when the quota of a project or the disk is full. It returns
// a function that makes room for an image, or returns an error for the client.
func reclaim(b *base, builds *build.Service, s *Server) (room func() error) {
	b.quota.Reclaim(builds.MakeRoom)
	makeRoom := func(ctx context.Context) bool {
		lack := b.space.Lack(builtAreas...)
		return lack > 0 && builds.MakeRoom(ctx, "", lack+lack/8)
	}
	s.later(startWorker(sweepInterval/4, sweepInterval/4, func(ctx context.Context) { makeRoom(ctx) }))
	return func() error {
		admit := func() error {
			return b.space.Admit(diskspace.Sandboxes, diskspace.Images, diskspace.Snapshots)
		}
		err := admit()
		if err != nil && makeRoom(context.Background()) {
			err = admit()
		}
		return err
	}
}

// projectIDs returns the ids of all projects: those with a record, those of keys, and the one of a server without keys.
func (b *base) projectIDs(ctx context.Context) ([]berth.ProjectID, error) {
	all, err := project.New(project.Options{Objects: b.db, Keys: b.db, Audit: b.audit}).List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	keys, err := b.db.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list projects of keys: %w", err)
	}
	ids := []berth.ProjectID{berth.DefaultProject}
	for _, p := range all {
		ids = append(ids, p.ID)
	}
	for _, k := range keys {
		ids = append(ids, k.Project)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

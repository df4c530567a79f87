package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/server/config"
)

// openSpace measures the volumes of a state directory, which it creates if necessary. If they
// are full, it calls calm and releases the reserve, so that the database can be opened.
func openSpace(state string, c *config.Config, log *slog.Logger, calm func(need func() int64)) (*diskspace.Guard,
	error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	sandboxes := c.Driver
	if sandboxes == config.UnsafeLocal {
		sandboxes = "local"
	}
	return diskspace.Open(diskspace.Options{Dir: state, Log: log, Calm: calm,
		Areas: map[diskspace.Area]string{
			diskspace.Files: filepath.Join(state, "files"), diskspace.Uploads: filepath.Join(state, "uploads"),
			diskspace.Skills: filepath.Join(state, "skills"), diskspace.Snapshots: filepath.Join(state, "snapshots"),
			diskspace.Sandboxes: filepath.Join(state, sandboxes), diskspace.Volumes: filepath.Join(state, "volumes"),
			diskspace.Images: filepath.Join(state, "images")},
		Low: (*int64)(c.Disk.Low), Critical: (*int64)(c.Disk.Critical), Reserve: (*int64)(c.Disk.Reserve),
		Inodes: c.Disk.Inodes})
}

// A quotaFunc returns an error for the client if a project may not store bytes more.
type quotaFunc func(ctx context.Context, p berth.ProjectID, bytes int64) error

// within returns a quota that first checks the free space of an area.
func within(space *diskspace.Guard, area diskspace.Area, quota quotaFunc) quotaFunc {
	return func(ctx context.Context, p berth.ProjectID, bytes int64) error {
		if err := space.Admit(area); err != nil {
			return err
		}
		return quota(ctx, p, bytes)
	}
}

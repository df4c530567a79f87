package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/sandbox/local"
)

// DiskConfig sets the free space below which a server refuses writes and ends containers.
type DiskConfig struct {
	// Low is the free space of a volume below which new data is refused. Default: a
	// twentieth of the volume, between 256m and 10g; 0 disables it.
	Low *Bytes `yaml:"low"`
	// Critical is the free space below which the container that writes most is ended.
	// Default: a hundredth, between 64m and 2g; 0 disables it.
	Critical *Bytes `yaml:"critical"`
	// Reserve is the space on the database's volume reserved for deletions. Default: a
	// hundredth, between 16m and 256m; 0 disables it.
	Reserve *Bytes `yaml:"reserve"`
	// Inodes is the number of free inodes below which new data is refused. Default: a
	// hundredth of all, at most 20,000.
	Inodes *int64 `yaml:"inodes"`
}

// openSpace measures the volumes of a state directory, which it creates if necessary. If they
// are full, it calls calm and releases the reserve, so that the database can be opened.
func openSpace(state string, c *Config, log *slog.Logger, calm func(need func() int64)) (*diskspace.Guard, error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	sandboxes := c.Driver
	if sandboxes == local.Name {
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

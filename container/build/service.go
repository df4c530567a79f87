// Package build builds templates in containers: images and steps of a Dockerfile that end in a snapshot, from which
// containers start. A template has builds, and tags that select them.
//
// A build waits in a queue of its server (queue.go), runs in a container (worker.go, step.go), and is saved with its
// log while it runs, so that other servers show it and a crash leaves nothing behind (interrupted.go). Results of steps
// are cached for later builds (cache.go).
package build

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// Images pulls the images that templates start from.
type Images interface {
	// Check returns a *berth.Error if a reference is not one of an image.
	Check(ref string) error
	// Pull returns the digest of a template of an image, which only this project may use. log
	// receives progress. Errors for clients are *berth.Error.
	// The image is not removed before release is called.
	Pull(ctx context.Context, p berth.ProjectID, ref, user, password string, log func(string)) (digest string,
		release func(), err error)
	// Spares returns the images of a project, or of all projects if p is empty, that nothing uses.
	Spares(ctx context.Context, p berth.ProjectID) ([]Spare, error)
}

// Options are the parts of a Service.
type Options struct {
	Containers *container.Service
	Placement  cluster.Placement // default: cluster.Solo
	Snapshots  *snapshot.Service // of the containers
	Files      *files.Service    // of steps
	Images     Images            // nil pulls no images
	Limits     Limits
	Server     string // this server's id, which survives a restart
	Memory     bool   // whether the driver can store the memory of containers
	Objects    store.Objects
	Log        *slog.Logger
	Clock      clock.Clock // default: clock.System

	// Idle is how long a template is kept at least after its last use when MakeRoom is called. 0 keeps templates
	// until they are deleted.
	Idle     time.Duration
	Running  func(ctx context.Context) ([]*store.Container, error) // all running containers; needed for Idle
	Projects func(ctx context.Context) ([]berth.ProjectID, error)  // all projects; needed for Idle
}

// A Service builds templates. It is safe for concurrent use.
type Service struct {
	Options

	builds  *builds
	sparing sync.Mutex // held by MakeRoom
	uses    uses
	life    context.Context // ends when the server stops, which ends builds
	stop    context.CancelCauseFunc
}

// New returns a Service. Run must run for builds that a crash interrupted to end; when it ends, so do those of this
// server.
func New(opts Options) *Service {
	life, stop := context.WithCancelCause(context.Background())
	opts.Limits = opts.Limits.withDefaults()
	if opts.Placement == nil {
		opts.Placement = cluster.Solo{}
	}
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	return &Service{Options: opts, builds: newBuilds(opts.Limits), life: life, stop: stop}
}

// discardTimeout bounds the deletion of what no template needs.
const discardTimeout = time.Minute

// DropSnapshot deletes a snapshot that no template needs.
func (d *Service) DropSnapshot(p berth.ProjectID, id berth.SnapshotID) {
	if id == "" {
		return
	}
	ctx, cancel := d.Clock.WithTimeout(context.Background(), discardTimeout)
	defer cancel()
	if err := d.Snapshots.Delete(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		d.Log.Error("failed to delete a snapshot that no template needs", "snapshot", id, "project", p, "err", err)
	}
}

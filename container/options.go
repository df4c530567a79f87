package container

import (
	"cmp"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/store"
)

// A Store is the part of the database that a Service uses.
type Store interface {
	store.Containers
	store.ContainerFiles
	store.Objects
}

// Options are the parts and limits of a Service. Store, Driver, Template, OpenFile, Log
// and Seal are required.
type Options struct {
	// Subjects returns a caller whose end user is known and has its limits, or an error for the client. Nil: callers
	// have no end users.
	Subjects func(ctx context.Context, caller berth.Caller) (berth.Caller, error)

	// Held returns an error for the client if one of some objects must not be deleted. A held container that expires
	// leaves a snapshot. Nil: nothing is held.
	Held func(ctx context.Context, p berth.ProjectID, ids ...string) error

	Store  Store
	Driver sandbox.Driver
	Log    *slog.Logger
	Seal   cipher.AEAD // for secrets in the store; from seal.New

	// Template returns the template with a name or digest, or the default one for "". It is
	// called for each creation.
	Template func(ref string) (Template, error)

	// MayName returns an error for the client unless a project may use the template ref. The
	// error is Template's for a missing template. Default: every project may use all templates.
	MayName func(ctx context.Context, p berth.ProjectID, ref string) error

	// OpenFile opens an uploaded file, as *files.Service does. Its errors for the client are
	// *berth.Error.
	OpenFile func(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error)

	Snapshots *snapshot.Service // nil: no snapshots
	Skills    *skills.Service   // nil: no skills
	Volumes   *volume.Service   // nil: no volumes; the driver must be able to mount them
	Audit     *audit.Log        // nil: no audit
	Observer  Observer          // default: none
	Network   NetworkOptions

	// Limits are those of every sandbox, except memory, which is the container's own tier.
	Limits sandbox.Limits
	Pools  []PoolOptions // no two may have the same template and memory limit
	// Memory returns how many bytes of memory this machine can give to new sandboxes, and how many it has. Pools
	// grow only while a quarter of it is available. Default: unknown, and no pool grows.
	Memory func() (available, total int64)
	Expiry ExpiryOptions
	Bounds Bounds
	Disk   DiskOptions

	// SpoolDir is the directory of content that several forks share until they run. Default: os.TempDir().
	SpoolDir string

	// SleepAfter is the time without any activity after which a container is paused until its
	// next use. Default: never. A driver that cannot pause ignores it.
	SleepAfter time.Duration

	// Server is this server's name in its cluster, whose other members have containers in the
	// same store. Default: there is no cluster, and all containers are this server's.
	Server string

	// Shares limits the containers of a project over all servers of a cluster. Nil means that
	// Quota suffices.
	Shares Shares

	// Quota returns how many containers a project may run concurrently, negative for no limit, or an
	// error for the client if it may not start another. Default: no limit.
	Quota func(ctx context.Context, p berth.ProjectID) (most int, err error)

	placement placement      // from Server and Driver
	clock     clock.Clock    // default: that of the system
	pressure  func() float64 // share of time in which some process waits for a CPU, 0 to 1
}

// ExpiryOptions control when idle containers expire and what happens to their files.
type ExpiryOptions struct {
	Action         berth.OnExpiry // default for containers without one; delete if empty
	SnapshotLife   time.Duration  // life of snapshots made on expiry; default 30 days
	IdleMinutes    int            // expires_after of containers without one; default 20
	MaxIdleMinutes int            // the largest expires_after; default a week
}

// DiskOptions describe the host's volume.
type DiskOptions struct {
	// Room returns an error for the client if the volume has no space for another sandbox or
	// snapshot. Default: there is always space.
	Room func() error

	// Filled reports whether a sandbox was killed before Start because it filled the volume.
	// Default: always false.
	Filled func(id berth.ContainerID) bool
}

// Bounds limit what one server does at the same time.
type Bounds struct {
	Containers int // running at a time; default 1,000
	Files      int // listed per container; default 10,000
	Scan       int // entries of a container that are scanned after each call; default 5,000
	Starts     int // sandboxes started concurrently; default one for each CPU
}

// A Template is the image and environment that sandboxes start from.
type Template struct {
	sandbox.Template
	Env []string // KEY=value, for all commands; the container's own values win

	Contents *berth.TemplateContents // nil if unknown
}

// withDefaults returns the options with defaults in place of zero values, or an error if they
// are invalid.
func (o Options) withDefaults() (Options, error) {
	if o.Store == nil || o.Driver == nil || o.Template == nil || o.OpenFile == nil || o.Log == nil || o.Seal == nil {
		return o, errors.New("container: Store, Driver, Template, OpenFile, Log and Seal are required")
	}
	if o.MayName == nil {
		o.MayName = func(context.Context, berth.ProjectID, string) error { return nil }
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Quota == nil {
		o.Quota = func(context.Context, berth.ProjectID) (int, error) { return -1, nil }
	}
	if o.Disk.Room == nil {
		o.Disk.Room = func() error { return nil }
	}
	o.placement = newPlacement(o.Server, o.Driver)
	if o.Memory == nil {
		o.Memory = func() (available, total int64) { return 0, 0 }
	}
	if o.clock == nil {
		o.clock = clock.System
	}
	if o.pressure == nil {
		o.pressure = cpuPressure
	}
	o.Expiry.IdleMinutes = cmp.Or(o.Expiry.IdleMinutes, 20)
	o.Expiry.MaxIdleMinutes = cmp.Or(o.Expiry.MaxIdleMinutes, 7*24*60)
	o.Expiry.SnapshotLife = cmp.Or(o.Expiry.SnapshotLife, 30*24*time.Hour)
	o.Bounds.Containers = cmp.Or(o.Bounds.Containers, 1000)
	o.Bounds.Files = cmp.Or(o.Bounds.Files, 10_000)
	o.Bounds.Scan = cmp.Or(o.Bounds.Scan, 5_000)
	o.Bounds.Starts = cmp.Or(o.Bounds.Starts, runtime.NumCPU())
	if o.Expiry.IdleMinutes < 1 || o.Expiry.IdleMinutes > o.Expiry.MaxIdleMinutes {
		return o, fmt.Errorf("container: containers expire after %d minutes, which must be between 1 and %d",
			o.Expiry.IdleMinutes, o.Expiry.MaxIdleMinutes)
	}
	return o, nil
}

// limitsOf returns the limits of a sandbox of a memory tier.
func (o *Options) limitsOf(memoryLimit string) sandbox.Limits {
	limits := o.Limits
	limits.Memory = berth.MemoryLimits[memoryLimit]
	return limits.WithDefaults()
}

// PoolOptions describe a pool.
type PoolOptions struct {
	Template    string // a name or a digest; empty means the default template
	MemoryLimit string // default 1g
	Size        int    // number of sandboxes
	Most        int    // number to which bursts of demand let it grow; default Size
}

// Shares divides the containers that a project may run among the servers of a cluster. It calls
// Service.Running.
type Shares interface {
	// AdmitContainer calls register with the number of containers that this server may run, or
	// returns an error for the client.
	AdmitContainer(ctx context.Context, p berth.ProjectID, register func(most int) error) error

	// ContainersChanged reports that a container has started or ended. It does not block.
	ContainersChanged(p berth.ProjectID)
}

// slack returns how long a guest may take to do what takes at most d on an idle machine. A
// guest that gets no CPU time is not dead.
func (o *Options) slack(d time.Duration) time.Duration { return slackAt(d, o.pressure()) }

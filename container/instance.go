package container

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/sandbox"
)

// An instance is the sandbox of a container in this process, from before the container is saved
// until the sandbox is removed.
type instance struct {
	project   berth.ProjectID
	id        berth.ContainerID       // also the driver's name of the sandbox
	body      berth.Container         // as it was when the instance was created
	requestID string                  // of the request that created it; empty after a restart
	client    *guest.Client           // connects at its first use
	network   atomic.Pointer[network] // nil without network access
	flows     flows                   // connections that are not in the audit log yet
	log       commandLog
	pool      *pool // the pool that holds it or that it was claimed from; nil without one
	clock     clock.Clock
	reserved  *reservation // nil for a container that was created immediately; set before the instance is registered

	life    context.Context // ends with the sandbox; the cause is the error of its users
	end     context.CancelCauseFunc
	started chan struct{} // closed when the sandbox runs or its start has failed

	policy policyState

	driver slots // one slot: calls to the driver about one sandbox are serialized
	files  fileState

	mu     sync.Mutex
	skills []berth.ContainerSkill // in the container; its elements do not change
	usage  usage
	death  death
	pause  pause
	reboot chan struct{} // closed when the sandbox has started anew; nil if it does not start
	expiry expiry
	health health

	history history // guards itself
	quiet   quietState

	attached attachments // guards itself

	visits atomic.Int32 // open connections of neighbours
}

// fileState is the state of a container's files.
type fileState struct {
	lock       slots        // one slot: serializes changes of the files' rows
	collecting atomic.Bool  // a scan is queued in the background
	rows       atomic.Int64 // upper bound of the rows since a scan; 0 before any
	crowded    atomic.Bool  // it has more entries than are scanned after each call
	workDir    string       // the guest's path of berth.WorkDir; guarded by instance.mu
}

// policyState is the network policy, if it has changed.
type policyState struct {
	lock    slots                // one slot: serializes changes
	present *berth.NetworkPolicy // nil for that of the body; guarded by instance.mu
}

// usage is when a container was used. It is guarded by instance.mu.
type usage struct {
	holds      int       // number of users
	active     time.Time // last use, while there is no user
	graceUntil time.Time // it does not expire before
	saved      int64     // last_active_at in the store
}

// death is the state of a container's end.
type death struct {
	reason   string      // why it ended; guarded by instance.mu
	recorded bool        // the end is in the store; guarded by instance.mu
	removing atomic.Bool // the sandbox is being removed in the background
	removed  bool        // the sandbox is completely removed; guarded by instance.driver
	moved    string      // the server that took the container over; guarded by instance.mu
}

// pause is whether a sandbox is paused: by a client, or asleep (sleep.go). It is guarded by
// instance.mu. To change it, the caller acquires instance.driver.
type pause struct {
	over          chan struct{} // closed when the sandbox is resumed; nil while it runs
	saved         bool          // the store has that a client paused it
	checkpointing bool          // it is paused only while its memory is written
}

// expiry is the state of the snapshot of an expiring container.
type expiry struct {
	running  atomic.Bool      // the snapshot is being made
	tried    time.Time        // usage.active at the last attempt; guarded by instance.mu
	attempts int              // failed attempts since; guarded by instance.mu
	snapshot berth.SnapshotID // the snapshot made; guarded by instance.mu
}

// assign binds an instance to a container. No other goroutine may use the instance.
func (s *instance) assign(p berth.ProjectID, body *berth.Container) {
	s.project, s.body, s.skills = p, *body, body.Berth.Skills
	s.usage.active, s.usage.saved = time.Unix(body.LastActiveAt, 0), body.LastActiveAt
}

// acquire counts a user. If the sandbox is dying, acquire waits until its end is saved
// and returns the error for its users.
func (s *instance) acquire(ctx context.Context) error {
	s.mu.Lock()
	dying := s.dyingLocked()
	if !dying {
		s.health.fresh = s.health.fresh || s.usage.holds == 0
		s.usage.holds++
	}
	s.mu.Unlock()
	if !dying {
		return nil
	}
	select {
	case <-s.life.Done():
		return context.Cause(s.life)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *instance) release(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.holds--
	s.usage.active = now
}

// touch records a use that has already ended.
func (s *instance) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.active = now
}

func (s *instance) lastActive(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastActiveLocked(now)
}

func (s *instance) lastActiveLocked(now time.Time) time.Time {
	if s.usage.holds > 0 {
		return now
	}
	return s.usage.active
}

// idleLocked reports whether the container's idle time is over.
func (s *instance) idleLocked(now time.Time) bool {
	limit := time.Duration(s.body.ExpiresAfter.Minutes) * time.Minute
	return s.usage.holds == 0 && !now.Before(s.usage.graceUntil) && now.Sub(s.usage.active) >= limit
}

// dyingLocked reports whether the sandbox's life has ended or is about to.
func (s *instance) dyingLocked() bool { return s.death.reason != "" || s.life.Err() != nil }

// markDead sets the reason of the sandbox's end, so that it cannot be acquired any more. It
// does nothing and returns false if there is a reason already, or if only is not nil and
// returns false.
func (s *instance) markDead(reason string, only func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dyingLocked() || only != nil && !only() {
		return false
	}
	s.death.reason = reason
	return true
}

// withLife returns a context that ends with ctx or with the sandbox, whichever is first, and
// has its cause.
func (s *instance) withLife(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// running reports whether the sandbox has been started.
func (s *instance) running() bool {
	select {
	case <-s.started:
		return true
	default:
		return false
	}
}

// health is whether a sandbox is alive and its guest answers. It is guarded by instance.mu,
// except disk.
type health struct {
	checked time.Time    // when the driver was last queried about the sandbox
	disk    atomic.Int64 // bytes on its disk at that time

	fresh    bool      // a user acquired it and it was not probed since
	answered time.Time // when the guest last answered, or when a user acquired the idle sandbox
	probed   time.Time // when it was last probed
	probing  bool

	silent      bool
	reach       context.Context // ends, with the error for its users, when the guest becomes silent
	cancelReach context.CancelCauseFunc
}

// quietState is since when a sandbox is quiet, and whether it sleeps.
type quietState struct {
	asleep  atomic.Bool   // changed with instance.mu held, if instance.pause.over is not nil
	sending atomic.Int32  // frames
	frames  atomic.Uint64 // sent and received

	// The rest is guarded by instance.mu.
	counted uint64        // value of frames when sweep last saw the sandbox
	since   time.Time     // no use and no frame; zero: unknown
	sampled time.Time     // when cpu was read; zero: not since then
	cpu     time.Duration // used by the sandbox's processes
}

// A reservation is a container whose id a response has, and that nothing has used yet. Its
// instance is registered and counts towards limits, but it is not in the store and has no
// sandbox, unless a pool gave one. The first use creates it. If no response needs it any more
// and none has used it, it is dropped. Clients do not see it before its first use.
type reservation struct {
	create func(ctx context.Context, now time.Time) error // saves the container and starts it

	mu       sync.Mutex
	over     bool // it was created or dropped
	promises int  // responses that have the id
}

// Reasons for a container's end, as berth.ContainerBerth documents them.
const (
	reasonExpired = "expired"
	reasonDeleted = "deleted"
	reasonOOM     = string(sandbox.ReasonOOM)
	reasonKilled  = string(sandbox.ReasonKilled)
	reasonHost    = string(sandbox.ReasonHost)
	reasonDisk    = "disk" // it filled the host's volume
	reasonEvicted = string(sandbox.ReasonEvicted)
)

// listSkills returns the skills in the container. The caller must not change them.
func (s *instance) listSkills() []berth.ContainerSkill {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.skills
}

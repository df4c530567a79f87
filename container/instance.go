package container

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// A sandbox is what a container runs in, from before the container is saved
// until nothing of it is left.
type instance struct {
	project berth.ProjectID
	id      berth.ContainerID // also the driver's name for it
	asked   string            // the id of the request that made it; empty after a restart
	body    berth.Container   // as it was when the sandbox was entered
	client  *guest.Client     // connects when it is used
	flows   flows             // not in the audit record yet
	network *network          // nil without a way out; set before it is entered into the books
	log     commandLog

	life    context.Context // ends with the sandbox; the cause is what its users are told
	end     context.CancelCauseFunc
	started chan struct{} // closed when the sandbox runs, or never will
	pool    *pool         // from which it was claimed, or in which it is; nil for one that was not
	driver  turns         // 1: the driver's calls about one sandbox come one at a time
	files   turns         // 1: the store's rows of files follow what is in the sandbox

	interring  atomic.Bool  // inter runs in the background
	collecting atomic.Bool  // a scan is about to run in the background
	rows       atomic.Int64 // of files in the store since a scan, at most; 0 before any
	disk       atomic.Int64 // bytes on its disk, when it was last checked
	leaving    atomic.Bool  // it is being kept as a snapshot, before it expires
	crowded    atomic.Bool  // it has so many files that scans are slow
	interred   bool         // nothing is left of it; owned by driver

	mu       sync.Mutex
	holds    int              // users
	active   time.Time        // last use, while there is none
	respite  time.Time        // it does not expire before
	saved    int64            // last_active_at in the store
	checked  time.Time        // when the driver was last asked about it
	reason   string           // for which it dies or died
	recorded bool             // its death is in the store
	tried    time.Time        // active, when it was last to be kept as a snapshot
	attempts int              // to do so since, that failed
	kept     berth.SnapshotID // what its expiry left
	paused   chan struct{}    // closed when it is resumed; nil while it is not paused. It changes under driver
	asleep   bool             // paused is for the time in which its memory is written
	workDir  string           // as the guest calls berth.WorkDir
	hearing  hearing
}

// newSandbox returns the sandbox of a container, not entered into the books yet.
func (k *Service) newSandbox(p berth.ProjectID, body *berth.Container) *instance {
	s := &instance{id: body.ID, started: make(chan struct{}), driver: make(turns, 1), files: make(turns, 1), log: newCommandLog(), checked: k.now()}
	s.assign(p, body)
	s.life, s.end = context.WithCancelCause(k.life)
	s.client = guest.NewClient(func(ctx context.Context) (net.Conn, error) { return k.dial(ctx, s) })
	return s
}

// assign makes a sandbox that nobody else knows yet a container's.
func (s *instance) assign(p berth.ProjectID, body *berth.Container) {
	s.project, s.body = p, *body
	s.active, s.saved = time.Unix(body.LastActiveAt, 0), body.LastActiveAt
}

// acquire counts a user. Of a sandbox that is dying it returns, once that is
// saved, what its users are told.
func (s *instance) acquire(ctx context.Context) error {
	s.mu.Lock()
	dying := s.dyingLocked()
	if !dying {
		s.hearing.fresh = s.hearing.fresh || s.holds == 0
		s.holds++
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
	s.holds--
	s.active = now
}

// touch counts as a use that is over at once.
func (s *instance) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = now
}

func (s *instance) lastActive(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastActiveLocked(now)
}

func (s *instance) lastActiveLocked(now time.Time) time.Time {
	if s.holds > 0 {
		return now
	}
	return s.active
}

// idleLocked reports whether the container has been idle for as long as it may.
func (s *instance) idleLocked(now time.Time) bool {
	limit := time.Duration(s.body.ExpiresAfter.Minutes) * time.Minute
	return s.holds == 0 && !now.Before(s.respite) && now.Sub(s.active) >= limit
}

// dyingLocked reports whether the sandbox's life has ended or is about to.
func (s *instance) dyingLocked() bool { return s.reason != "" || s.life.Err() != nil }

// condemn settles the reason for which the sandbox dies, if none is and only,
// which may be nil, agrees. It reports whether it did; nobody can acquire the
// sandbox from then on.
func (s *instance) condemn(reason string, only func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dyingLocked() || only != nil && !only() {
		return false
	}
	s.reason = reason
	return true
}

// within returns a context that ends with ctx or with the sandbox, whichever
// comes first, and its cause with it.
func (s *instance) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// inReach is within for what the guest is asked: the context ends when that becomes
// silent as well.
func (s *instance) inReach(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, done := s.within(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	contact := s.contact()
	stop := context.AfterFunc(contact, func() { cancel(context.Cause(contact)) })
	return ctx, func() {
		stop()
		cancel(nil)
		done()
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

package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/sandbox"
)

// removeTimeout bounds one attempt to remove a dead sandbox.
const removeTimeout = time.Minute

// statsTimeout bounds one read of the driver's stats.
const statsTimeout = 10 * time.Second

// deaths ends containers and removes their sandboxes.
type deaths struct {
	opts     *Options
	work     *workers
	index    *index
	trail    *trail
	networks *networks
	records  *startRecords

	ended atomic.Pointer[func(berth.ProjectID, berth.ContainerID)] // see Service.OnEnded

	mu     sync.Mutex
	recent []time.Time // sandboxes found dead
}

// end ends a container. Every death goes through end once: its end is logged and saved, its
// users get clientErr, and its sandbox is destroyed in the background. The sweeper, or the next
// Start, retries a step that fails. cause is for the operator and may be nil. If only is not
// nil and returns false, end does nothing. end reports whether it ended the container.
func (d *deaths) end(s *instance, reason string, clientErr, cause error, only func() bool) bool {
	if !d.claim(s, reason, cause, only) {
		return false
	}
	d.settle(s, clientErr)
	return true
}

// claim is the first part of end: it sets the reason of the container's end, so that no other
// caller ends it. settle must follow.
func (d *deaths) claim(s *instance, reason string, cause error, only func() bool) bool {
	if !s.markDead(reason, only) {
		return false
	}
	if d.findMoved(s) {
		return true
	}
	d.opts.Observer.Ended(reason)
	log := d.opts.Log.With("container", s.id, "project", s.project, "reason", reason)
	if cause == nil {
		log.Info("container ended")
	} else {
		log.Error("container ended", "request_id", s.requestID, "err", cause)
	}
	return true
}

// settle is the second part of end.
func (d *deaths) settle(s *instance, clientErr error) {
	ctx, cancel := d.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := d.save(ctx, s); err != nil {
		d.opts.Log.Error("failed to save the end of a container", "container", s.id, "project", s.project, "err", err)
	}
	if server := s.successor(); server != "" {
		clientErr = cluster.Elsewhere(fmt.Sprintf("Container with id '%s'", s.id), server)
	}
	s.end(clientErr)
	d.removeSoon(s)
}

// removeSoon removes a dead sandbox in the background.
func (d *deaths) removeSoon(s *instance) {
	if !s.death.removing.CompareAndSwap(false, true) {
		return
	}
	spawned := d.work.spawn(func() {
		defer s.death.removing.Store(false)
		if err := d.remove(s); err != nil {
			d.opts.Log.Error("failed to remove a dead sandbox; will retry", "container", s.id, "err", err)
		}
	})
	if !spawned {
		s.death.removing.Store(false)
	}
}

// remove destroys a dead sandbox and unregisters it, unless it is already removed.
func (d *deaths) remove(s *instance) error {
	ctx, cancel := d.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	if s.death.removed {
		return nil
	}
	if err := d.save(ctx, s); err != nil {
		return err
	}
	if s.successor() == "" { // else its sandbox is another server's
		if err := d.destroy(ctx, s); err != nil {
			return err
		}
		if err := d.trail.recordErased(ctx, s); err != nil {
			return err
		}
	}
	s.death.removed = true
	d.index.unregister(s)
	s.client.Close() // last: a hostile guest can delay it
	return nil
}

// destroy destroys a sandbox. The caller has acquired s.driver.
func (d *deaths) destroy(ctx context.Context, s *instance) error {
	return nofile.Retry(func() error { return d.opts.Driver.Destroy(ctx, string(s.id)) })
}

// Deaths of several sandboxes at the same time are rare, and more often an error of the check itself:
// check queries the driver again after a moment before it ends a container.
const (
	burstSize    = 2
	burstWindow  = time.Second
	recheckDelay = 300 * time.Millisecond
)

// check queries whether a started sandbox still runs, and ends the container if there is proof
// that it does not.
func (d *deaths) check(s *instance) {
	if !s.running() || s.life.Err() != nil {
		return
	}
	ctx, cancel := d.opts.clock.WithTimeout(s.life, statsTimeout)
	defer cancel()
	reason, err := d.reason(ctx, s)
	if reason != "" && d.inBurst() {
		d.opts.Log.Warn("several sandboxes ended at once; checking again", "container", s.id, "reason", reason)
		select {
		case <-d.opts.clock.After(recheckDelay):
		case <-ctx.Done():
			return
		}
		reason, err = d.reason(ctx, s)
	}
	if err != nil && ctx.Err() == nil {
		d.opts.Log.Warn("failed to get the state of a sandbox", "container", s.id, "err", err)
	}
	if reason != "" {
		d.end(s, reason, goneError(&s.body, reason), nil, nil)
	}
}

// reason returns why a sandbox has ended, or "" if it has not. It returns an error if the
// state of the sandbox is unknown.
func (d *deaths) reason(ctx context.Context, s *instance) (reason string, err error) {
	if err := s.driver.acquire(ctx); err != nil {
		return "", err
	}
	defer s.driver.release()
	var stats sandbox.Stats
	err = nofile.Retry(func() (err error) {
		stats, err = d.opts.Driver.Stats(ctx, string(s.id))
		return err
	})
	if err == nil {
		s.health.disk.Store(stats.Disk)
		if stats.State == sandbox.StateRunning {
			s.history.add(sampleOf(s, stats, d.opts.clock.Now()))
		}
	}
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return reasonHost, nil
	case err != nil:
		return "", err
	case stats.State == sandbox.StatePaused:
		s.markPaused()
	case stats.State == sandbox.StateDead:
		if stats.Detail != "" {
			d.opts.Log.Info("a sandbox has ended", "container", s.id, "reason", stats.Reason, "detail", stats.Detail)
		}
		return cmp.Or(string(stats.Reason), reasonKilled), nil
	}
	return "", nil
}

// inBurst counts a death and reports whether others were found just before.
func (d *deaths) inBurst() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.opts.clock.Now()
	d.recent = append(slices.DeleteFunc(d.recent, func(at time.Time) bool { return now.Sub(at) > burstWindow }), now)
	return len(d.recent) > burstSize
}

// goneError returns the error for users of a container that has ended. Its first
// sentence is the hosted service's.
func goneError(c *berth.Container, reason string) *berth.Error {
	why := ""
	switch reason {
	case reasonDeleted:
		return berth.NotFound("Container", c.ID)
	case reasonExpired:
		why = fmt.Sprintf("was not used for %d minutes", c.ExpiresAfter.Minutes)
	case reasonOOM:
		why = fmt.Sprintf("reached its memory limit of %s and was ended", c.MemoryLimit)
	case reasonDisk:
		why = "was ended because it was filling the disk of this server"
	case reasonEvicted:
		why = "was evicted from its machine, which lacked resources, or wrote more than its disk limit"
	case reasonKilled:
		why = "ended on its own or was killed"
	default:
		why = "was ended by a failure of its machine"
	}
	left := "its files are gone"
	if c.Berth.LastSnapshot != "" {
		left = fmt.Sprintf("its files are in the snapshot '%s'", c.Berth.LastSnapshot)
	}
	return &berth.Error{Code: berth.CodeInvalid, Wire: "container_expired",
		Message: fmt.Sprintf("Container is expired. Container with id '%s' %s; %s.", c.ID, why, left)}
}

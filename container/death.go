package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// The reasons for a container's end, as berth.ContainerBerth says them.
const (
	reasonExpired = "expired"
	reasonDeleted = "deleted"
	reasonOOM     = string(sandbox.ReasonOOM)
	reasonKilled  = string(sandbox.ReasonKilled)
	reasonHost    = string(sandbox.ReasonHost)
	reasonDisk    = "disk" // it was filling the host's volume
)

// burialTime bounds one attempt to remove what is left of a sandbox.
const burialTime = time.Minute

// statsTime bounds a question to the driver.
const statsTime = 10 * time.Second

// bury ends a container: every death passes here, once. Its end is logged and
// saved, its users are told, and its sandbox is destroyed in the background. What
// fails of that is tried again by the sweeper, or by the next Start. cause is for
// the operator. If only is not nil and disagrees, nothing happens.
// It reports whether the container has ended by it.
func (k *Service) bury(s *instance, reason string, told, cause error, only func() bool) bool {
	if !s.condemn(reason, only) {
		return false
	}
	k.opts.Observer.Ended(reason)
	log := k.opts.Log.With("container", s.id, "project", s.project, "reason", reason)
	if cause == nil {
		log.Info("container ended")
	} else {
		log.Error("container ended", "request_id", s.asked, "err", cause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), burialTime)
	defer cancel()
	if err := k.record(ctx, s); err != nil {
		log.Error("the end of a container was not saved", "err", err)
	}
	s.end(told)
	k.interSoon(s)
	return true
}

// record saves the end of a container, if that has not been done.
func (k *Service) record(ctx context.Context, s *instance) error {
	s.mu.Lock()
	reason, recorded, kept, active := s.reason, s.recorded, s.kept, s.lastActiveLocked(k.now()).Unix()
	s.mu.Unlock()
	if recorded {
		return nil
	}
	var err error
	if reason == reasonDeleted {
		err = k.opts.Store.DeleteContainer(ctx, s.project, s.id)
	} else {
		_, err = k.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
			c.Status, c.Berth.Starting, c.Berth.Reason, c.Berth.LastSnapshot = berth.ContainerExpired, false, reason, kept
			c.LastActiveAt = max(c.LastActiveAt, active)
			return nil
		})
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err := k.forgetSecrets(ctx, s); err != nil {
		return err
	}
	if err := k.deleteStart(ctx, s); err != nil {
		return fmt.Errorf("delete start record: %w", err)
	}
	if err := k.recordEnded(ctx, s, reason, kept); err != nil {
		return err
	}
	s.mu.Lock()
	s.recorded = true
	s.mu.Unlock()
	return nil
}

// interSoon removes what is left of a dead sandbox in the background.
func (k *Service) interSoon(s *instance) {
	if !s.interring.CompareAndSwap(false, true) {
		return
	}
	spawned := k.spawn(func() {
		defer s.interring.Store(false)
		if err := k.inter(s); err != nil {
			k.opts.Log.Error("a dead sandbox was not removed; this will be tried again", "container", s.id, "err", err)
		}
	})
	if !spawned {
		s.interring.Store(false)
	}
}

// inter removes what is left of a dead sandbox, if anything is.
func (k *Service) inter(s *instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), burialTime)
	defer cancel()
	if err := s.driver.take(ctx); err != nil {
		return err
	}
	defer s.driver.give()
	if s.interred {
		return nil
	}
	if err := k.record(ctx, s); err != nil {
		return err
	}
	if err := k.destroy(ctx, s); err != nil {
		return err
	}
	if err := k.recordErased(ctx, s); err != nil {
		return err
	}
	s.interred = true
	k.leave(s)
	s.client.Close() // not before: a hostile guest can make that wait
	return nil
}

// destroy has the driver end a sandbox. The caller has taken s.driver.
func (k *Service) destroy(ctx context.Context, s *instance) error {
	return nofile.Retry(func() error { return k.opts.Driver.Destroy(ctx, string(s.id)) })
}

// Deaths of several sandboxes at once are rare, and more often a fault of what looks at
// them: the driver is asked again after a moment before anything is removed.
const (
	deathsAtOnce = 2
	deathsWithin = time.Second
	deathAgain   = 300 * time.Millisecond
)

// check asks the driver whether a sandbox that ran still does, and buries it if there is
// proof that it does not.
func (k *Service) check(s *instance) {
	if !s.running() || s.life.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, statsTime)
	defer cancel()
	reason, err := k.death(ctx, s)
	if reason != "" && k.diesWithOthers() {
		k.opts.Log.Warn("several sandboxes have ended at once; checking again", "container", s.id, "reason", reason)
		select {
		case <-time.After(deathAgain):
		case <-ctx.Done():
			return
		}
		reason, err = k.death(ctx, s)
	}
	if err != nil && ctx.Err() == nil {
		k.opts.Log.Warn("failed to get the state of a sandbox", "container", s.id, "err", err)
	}
	if reason != "" {
		k.bury(s, reason, goneError(&s.body, reason), nil, nil)
	}
}

// death returns the reason for which a sandbox has ended, "" if it has not. An error
// means that it is not known.
func (k *Service) death(ctx context.Context, s *instance) (reason string, err error) {
	if err := s.driver.take(ctx); err != nil {
		return "", err
	}
	defer s.driver.give()
	var stats sandbox.Stats
	err = nofile.Retry(func() (err error) {
		stats, err = k.opts.Driver.Stats(ctx, string(s.id))
		return err
	})
	if err == nil {
		s.disk.Store(stats.Disk)
	}
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return reasonHost, nil
	case err != nil:
		return "", err
	case stats.State == sandbox.StatePaused:
		s.foundPaused()
	case stats.State == sandbox.StateDead:
		return cmp.Or(string(stats.Reason), reasonKilled), nil
	}
	return "", nil
}

// diesWithOthers counts a death, and reports whether there were others just before.
func (k *Service) diesWithOthers() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.deaths = append(slices.DeleteFunc(k.deaths, func(at time.Time) bool { return now.Sub(at) > deathsWithin }), now)
	return len(k.deaths) > deathsAtOnce
}

// goneError is what users of a container that has ended get. Its first sentence
// is the hosted service's.
func goneError(c *berth.Container, reason string) *berth.Error {
	why := ""
	switch reason {
	case reasonDeleted:
		return notFound(c.ID)
	case reasonExpired:
		why = fmt.Sprintf("was not used for %d minutes", c.ExpiresAfter.Minutes)
	case reasonOOM:
		why = fmt.Sprintf("reached its memory limit of %s and was ended", c.MemoryLimit)
	case reasonDisk:
		why = "was ended because it was filling the disk of this server"
	case reasonKilled:
		why = "ended on its own or was killed"
	default:
		why = "could not be kept running by its machine"
	}
	left := "its files are gone"
	if c.Berth.LastSnapshot != "" {
		left = fmt.Sprintf("its files are in the snapshot '%s'", c.Berth.LastSnapshot)
	}
	return &berth.Error{Code: berth.CodeInvalid, Wire: "container_expired",
		Message: fmt.Sprintf("Container is expired. Container with id '%s' %s; %s.", c.ID, why, left)}
}

func notFound(id berth.ContainerID) *berth.Error {
	return berth.Errorf(berth.CodeNotFound, "Container with id '%s' not found.", id)
}

package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/sandbox"
)

const (
	// relieveTimeout bounds the removal of containers that fill the host's volume.
	relieveTimeout = 15 * time.Second
	// freezeTimeout bounds the freezing of one sandbox.
	freezeTimeout = 2 * time.Second
	// minGrowth is the growth since the last check above which a container counts as filling
	// the volume.
	minGrowth = 8 << 20
)

// diskUse is a sandbox's disk use.
type diskUse struct {
	s      *instance
	bytes  int64
	growth int64 // since the last check, at most checkInterval ago
}

// A relief frees space on the host's volume.
type relief struct {
	opts   *Options
	index  *index
	meter  *meter
	deaths *deaths
}

// run ends the containers that fill the host's volume, with the reason "disk", until it has
// enough space. It ends those whose disks grow, the fastest first, or, if none grows, the
// largest ones if their end frees enough. need returns how many bytes the volume lacks now.
// It returns true if it ended a container and its space is free. Pausing would not help:
// any use would resume the container, and its space would stay in use.
//
// If the driver is a sandbox.Freezer, all other sandboxes are frozen for that time: they would use
// up the freed space before an end is saved. Until then nothing is written.
func (re *relief) run(ctx context.Context, need func() int64) bool {
	ctx, cancel := re.opts.clock.WithTimeout(ctx, relieveTimeout)
	defer cancel()
	freezer, ok := re.opts.Driver.(sandbox.Freezer)
	if ok {
		re.killEnded(ctx, freezer)
	}
	lack := need()
	if lack <= 0 {
		return true
	}
	uses := re.meter.measure(ctx)
	writers := writersOf(uses, lack)
	if len(writers) == 0 {
		return false
	}
	if !ok {
		return re.relieveOf(ctx, writers[0], lack)
	}
	thaw := re.freezeAll(ctx, freezer, uses)
	defer thaw()
	var ended []*instance
	for _, w := range writers {
		if lack = need(); lack <= 0 {
			break
		}
		// The end is marked first, so that no check finds a dead sandbox without a reason.
		if !re.deaths.claim(w.s, reasonDisk, w.cause(lack), nil) {
			continue
		}
		ended = append(ended, w.s)
		if err := re.kill(ctx, freezer, w.s); err != nil {
			re.opts.Log.Error("failed to end the processes of a container that fills the disk", "container", w.s.id,
				"err", err)
		}
	}
	for _, s := range ended {
		re.deaths.settle(s, goneError(&s.body, reasonDisk))
	}
	thaw()
	removed := 0
	for _, s := range ended {
		if re.deaths.remove(s) == nil {
			removed++
		}
	}
	return removed > 0
}

func (w diskUse) cause(need int64) error {
	return fmt.Errorf("its disk has %d bytes, %d more than at the last check, and the volume lacks %d bytes", w.bytes,
		w.growth, need)
}

// relieveOf ends one container of a driver that cannot freeze.
func (re *relief) relieveOf(ctx context.Context, w diskUse, need int64) bool {
	s := w.s
	// The sandbox must stop before its end is saved: the save may need the space that it uses
	// up.
	if re.opts.Driver.Features().Pause && s.driver.acquire(ctx) == nil {
		if err := re.opts.Driver.Pause(ctx, string(s.id)); err != nil {
			re.opts.Log.Warn("failed to pause a container that fills the disk", "container", s.id, "err", err)
		}
		s.driver.release()
	}
	re.deaths.end(s, reasonDisk, goneError(&s.body, reasonDisk), w.cause(need), nil)
	return re.deaths.remove(s) == nil
}

// freezeAll freezes sandboxes and holds their drivers. thaw resumes them and may be called
// twice.
func (re *relief) freezeAll(ctx context.Context, freezer sandbox.Freezer, uses []diskUse) (thaw func()) {
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, u := range uses {
		g.Go(func() error {
			if err := re.freeze(ctx, freezer, u.s); err != nil {
				re.opts.Log.Warn("failed to freeze a container while the disk is full", "container", u.s.id, "err",
					err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return sync.OnceFunc(func() {
		for _, u := range uses {
			if err := re.thaw(context.WithoutCancel(ctx), freezer, u.s); err != nil {
				re.opts.Log.Error("failed to thaw a container", "container", u.s.id, "err", err)
			}
		}
	})
}

func (re *relief) freeze(ctx context.Context, freezer sandbox.Freezer, s *instance) error {
	ctx, cancel := re.opts.clock.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	return freezer.Freeze(ctx, string(s.id))
}

// killEnded kills the processes of ended containers whose ends could not be saved: they are not
// destroyed, and may write.
func (re *relief) killEnded(ctx context.Context, freezer sandbox.Freezer) {
	for _, s := range re.index.all() {
		if s.life.Err() == nil || s.death.removing.Load() {
			continue
		}
		if err := re.kill(ctx, freezer, s); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			re.opts.Log.Error("failed to end the processes of a container that has ended", "container", s.id, "err",
				err)
		}
	}
}

func (re *relief) kill(ctx context.Context, freezer sandbox.Freezer, s *instance) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	return freezer.Kill(ctx, string(s.id))
}

// thaw resumes a sandbox unless it has ended.
func (re *relief) thaw(ctx context.Context, freezer sandbox.Freezer, s *instance) error {
	ctx, cancel := re.opts.clock.WithTimeout(ctx, relieveTimeout)
	defer cancel()
	if s.life.Err() != nil {
		return nil // killed, or about to be removed
	}
	// The driver's lock is not acquired: its holder may be waiting for the sandbox.
	return freezer.Thaw(ctx, string(s.id))
}

// measure returns the disk use of the running sandboxes.
func (m *meter) measure(ctx context.Context) []diskUse {
	var mu sync.Mutex
	var all []diskUse
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, s := range m.index.all() {
		if s.life.Err() != nil || !s.running() {
			continue
		}
		g.Go(func() error {
			read, err := m.read(ctx, s)
			if err != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, diskUse{s, read.Disk, read.Disk - s.health.disk.Load()})
			return nil
		})
	}
	_ = g.Wait()
	return all
}

// writersOf returns the sandboxes that may have filled the volume, in the order in which to end
// them: those that grow, or else the largest ones if together they have the bytes that the
// volume needs.
func writersOf(all []diskUse, need int64) []diskUse {
	var grow, large []diskUse
	var bytes int64
	for _, u := range all {
		if u.growth >= minGrowth {
			grow = append(grow, u)
		}
		if u.bytes >= minGrowth {
			large = append(large, u)
			bytes += u.bytes
		}
	}
	if len(grow) > 0 {
		slices.SortFunc(grow, func(a, b diskUse) int { return cmp.Compare(b.growth, a.growth) })
		return grow
	}
	if bytes < need {
		return nil // another program fills the volume
	}
	slices.SortFunc(large, func(a, b diskUse) int { return cmp.Compare(b.bytes, a.bytes) })
	return large
}

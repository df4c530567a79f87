package container

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// relieveTimeout bounds the removal of a container that fills the host's volume.
	relieveTimeout = 15 * time.Second
	// minGrowth is how much a container must have grown since the last check to be
	// regarded as the one that fills the volume.
	minGrowth = 8 << 20
)

// diskUse is what a sandbox has on its disk.
type diskUse struct {
	s      *instance
	bytes  int64
	growth int64 // since the last check, at most checkInterval ago
}

// Relieve ends the container that fills the host's volume, with the reason "disk": the one
// whose disk grows the most or, if none grows, the largest one if its end frees need
// bytes. It returns true if a container was ended and its space is free. Pausing would not
// help: any use would resume the container, and its space would stay in use.
func (svc *Service) Relieve(ctx context.Context, need int64) bool {
	ctx, cancel := context.WithTimeout(ctx, relieveTimeout)
	defer cancel()
	w, found := largestGrowth(svc.meter.measure(ctx), need)
	if !found {
		return false
	}
	s := w.s
	cause := fmt.Errorf("its disk has %d bytes, %d more than at the last check, and the volume lacks %d bytes", w.bytes, w.growth, need)
	// It must stop before its end is saved: the save may need the space that it uses up.
	if svc.opts.Driver.Features().Pause && s.driver.acquire(ctx) == nil {
		if err := svc.opts.Driver.Pause(ctx, string(s.id)); err != nil {
			svc.opts.Log.Warn("failed to pause a container that fills the disk", "container", s.id, "err", err)
		}
		s.driver.release()
	}
	svc.deaths.end(s, reasonDisk, goneError(&s.body, reasonDisk), cause, nil)
	return svc.deaths.remove(s) == nil
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

// largestGrowth returns the sandbox that fills the volume.
func largestGrowth(all []diskUse, need int64) (w diskUse, found bool) {
	for _, one := range all {
		if one.growth >= minGrowth && one.growth > w.growth {
			w, found = one, true
		}
	}
	if found {
		return w, true
	}
	for _, one := range all {
		if one.bytes >= need && one.bytes > w.bytes {
			w, found = one, true
		}
	}
	return w, found
}

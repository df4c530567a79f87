package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

const (
	lookEvery = time.Second
	atOnce    = 4   // deliveries to one endpoint
	allAtOnce = 64  // to all
	window    = 512 // due deliveries that are looked at at once

	faultTime = 10 * time.Second // before a delivery is tried again that could not be saved
)

// A sender takes what is due.
type sender struct {
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	free chan struct{} // something was delivered, so there is room

	mu   sync.Mutex
	busy map[store.ObjectRef]bool
	to   map[address]int // how many go to an endpoint now
}

// An address is an endpoint of a project.
type address struct {
	project  berth.ProjectID
	endpoint string
}

func newSender() sender {
	ctx, stop := context.WithCancel(context.Background())
	return sender{ctx: ctx, stop: stop, free: make(chan struct{}, 1), busy: map[store.ObjectRef]bool{}, to: map[address]int{}}
}

// Start makes deliveries from now on, those that a former process has left as well.
func (s *Service) Start() { s.sender.wg.Go(s.send) }

// Close breaks off the attempts that are being made; they are made again after the
// next Start.
func (s *Service) Close() error {
	s.sender.stop()
	s.sender.wg.Wait()
	return nil
}

func (s *Service) send() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := s.look(); err != nil && s.sender.ctx.Err() == nil {
			s.log.Error("webhooks that are due were not found", "err", err)
		}
		select {
		case <-tick.C:
		case <-s.sender.free:
		case <-s.sender.ctx.Done():
			return
		}
	}
}

// look begins the deliveries that are due and for which there is room.
func (s *Service) look() error {
	d := &s.sender
	due, err := s.objects.ExpiredObjects(d.ctx, KindDelivery, time.Now(), window)
	if err != nil {
		return err
	}
	waiting := map[address]int{}
	for _, ref := range due {
		to := address{ref.Project, ref.Parent}
		switch d.take(ref, to) {
		case taken:
			d.wg.Go(func() { s.run(ref, to) })
		case full:
			waiting[to]++
			if len(due) == window {
				// Those behind are not to wait for an endpoint that is slow.
				if err := s.postpone(ref, waiting[to]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// What becomes of a delivery that is due.
type verdict int

const (
	taken verdict = iota // it may begin
	known                // it is being made
	full                 // others to its endpoint are
	later                // others are
)

func (d *sender) take(ref store.ObjectRef, to address) verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.busy[ref]:
		return known
	case d.to[to] >= atOnce:
		return full
	case len(d.busy) >= allAtOnce:
		return later
	}
	d.busy[ref] = true
	d.to[to]++
	return taken
}

func (s *Service) run(ref store.ObjectRef, to address) {
	if err := s.deliver(s.sender.ctx, ref); err != nil && s.sender.ctx.Err() == nil {
		s.log.Error("a webhook was not delivered; it will be tried again", "project", ref.Project, "delivery", ref.ID, "err", err)
		_ = backoff.Sleep(s.sender.ctx, faultTime) // it is due still
	}
	d := &s.sender
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, ref)
	if d.to[to]--; d.to[to] == 0 {
		delete(d.to, to)
	}
	select {
	case d.free <- struct{}{}:
	default:
	}
}

// postpone puts off the n-th of the deliveries that wait for an endpoint, to about
// when its turn would come if every attempt took all its time.
func (s *Service) postpone(ref store.ObjectRef, n int) error {
	_, err := s.objects.UpdateObject(s.sender.ctx, ref.Project, ref.ObjectKey, func(o *store.Object) error {
		o.ExpiresAt = time.Now().Add(time.Duration(1+n/atOnce) * postTime).Unix()
		return nil
	})
	return ignoreNotFound(err)
}

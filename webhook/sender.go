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
	pollEvery = time.Second // between queries for due deliveries
	atOnce    = 4           // concurrent deliveries to one endpoint
	allAtOnce = 64          // concurrent deliveries to all endpoints
	window    = 512         // due deliveries per query

	faultTime = 10 * time.Second // wait after a failure of the store
)

// A sender is the state of the background worker that makes due deliveries.
type sender struct {
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	free chan struct{} // a delivery has ended, so another can start

	mu   sync.Mutex
	busy map[store.ObjectRef]bool
	to   map[address]int // number of deliveries in progress to each endpoint
}

// An address is an endpoint of a project.
type address struct {
	project  berth.ProjectID
	endpoint string
}

func newSender() sender {
	return sender{free: make(chan struct{}, 1), busy: map[store.ObjectRef]bool{}, to: map[address]int{}}
}

// Run makes the deliveries until ctx ends, including those that a former process left pending. It
// then cancels the attempts in progress, which the next Run repeats. It must not run twice at
// a time.
func (s *Service) Run(ctx context.Context) {
	s.sender.ctx, s.sender.stop = context.WithCancel(ctx)
	defer s.sender.wg.Wait()
	defer s.sender.stop()
	s.send()
}

func (s *Service) send() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	failing := false // logged once, not at each poll of a database that is away
	for {
		err := s.startDue()
		switch {
		case s.sender.ctx.Err() != nil:
		case err != nil && !failing:
			s.log.Error("failed to list due webhook deliveries; will retry", "err", err)
		case err == nil && failing:
			s.log.Info("webhook deliveries continue")
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-s.sender.free:
		case <-s.sender.ctx.Done():
			return
		}
	}
}

// startDue starts due deliveries within the limits of concurrency.
func (s *Service) startDue() error {
	d := &s.sender
	due, err := s.objects.ExpiredObjects(d.ctx, KindDelivery, time.Now(), window)
	if err != nil {
		return err
	}
	waiting := map[address]int{}
	for _, ref := range due {
		to := address{ref.Project, ref.Parent}
		switch d.acquire(ref, to) {
		case acquired:
			d.wg.Go(func() { s.run(ref, to) })
		case full:
			waiting[to]++
			if len(due) == window {
				// Otherwise a slow endpoint's deliveries could fill the window and block all others.
				if err := s.postpone(ref, waiting[to]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// A verdict is the result of acquire.
type verdict int

const (
	acquired verdict = iota // the delivery may start
	known                   // it is in progress
	full                    // its endpoint has atOnce deliveries in progress
	later                   // allAtOnce deliveries are in progress
)

// acquire registers a delivery as in progress, if it may start.
func (d *sender) acquire(ref store.ObjectRef, to address) verdict {
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
	return acquired
}

func (s *Service) run(ref store.ObjectRef, to address) {
	if err := s.deliver(s.sender.ctx, ref); err != nil && s.sender.ctx.Err() == nil {
		s.log.Error("failed to read or save webhook delivery; will retry", "project", ref.Project, "delivery", ref.ID,
			"err", err)
		_ = backoff.Sleep(s.sender.ctx, faultTime) // it is still due, and would start again immediately
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

// postpone sets the next attempt of the n-th delivery that waits for an endpoint: to about
// its turn if every attempt before it took until its timeout.
func (s *Service) postpone(ref store.ObjectRef, n int) error {
	_, err := s.objects.UpdateObject(s.sender.ctx, ref.Project, ref.ObjectKey, func(o *store.Object) error {
		o.ExpiresAt = time.Now().Add(time.Duration(1+n/atOnce) * postTime).Unix()
		return nil
	})
	return ignoreNotFound(err)
}

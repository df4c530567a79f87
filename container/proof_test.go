package container

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// Failing to query sandboxes, because the machine lacks resources, ends none of them, whatever
// calls are made during it.
func TestErrorsOfTheMachineEndNothing(t *testing.T) {
	for _, errno := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EIO, unix.EACCES,
		context.DeadlineExceeded} {
		t.Run(errno.Error(), func(t *testing.T) {
			h := newHarness(t)
			id := h.ready()
			h.sh(id, "echo precious >file")
			h.driver.mu.Lock()
			h.driver.fail = func(_ context.Context, op, _ string) error {
				if op == "stats" || op == "dial" {
					return errno
				}
				return nil
			}
			h.driver.mu.Unlock()
			h.k.index.lookup(mine, id).client.Disconnect()
			_, _, err := h.k.files.List(t.Context(), mine, id, store.Page{Limit: 1})
			wantError(t, err, berth.CodeUnavailable, "", "does not answer")
			h.k.sweeper.sweep(t.Context())
			h.k.deaths.check(h.k.index.lookup(mine, id))
			h.driver.mu.Lock()
			h.driver.fail = nil
			h.driver.mu.Unlock()
			if got := h.sh(id, "cat file"); got != "precious\n" {
				t.Errorf("got %q", got)
			}
			if got := h.get(id); got.Status != berth.ContainerRunning {
				t.Errorf("got %s, %q", got.Status, got.Berth.Reason)
			}
		})
	}
}

// A manualWaits is a clock by which second checks of sandboxes wait until a test advances waits.
type manualWaits struct {
	clock.Clock
	waits *clock.Manual
}

func (c manualWaits) After(d time.Duration) <-chan time.Time {
	if d == recheckDelay {
		return c.waits.After(d)
	}
	return c.Clock.After(d)
}

// Several sandboxes that seem to have ended at the same time are checked again, because the source may
// be wrong. Those that have ended are ended.
func TestDeathsAtOnceAreCheckedAgain(t *testing.T) {
	waits := clock.NewManual(time.Unix(1_800_000_000, 0))
	h := newHarness(t, func(o *Options) { o.clock = manualWaits{heldClock{clock.System, waits.Now}, waits} })
	var ids []berth.ContainerID
	for range 6 {
		ids = append(ids, h.ready())
	}
	var lie atomic.Value // the sandbox that the driver denies
	lie.Store("")
	h.driver.mu.Lock()
	h.driver.fail = func(_ context.Context, op, id string) error {
		if op == "stats" && id == lie.Load() {
			return sandbox.ErrNotFound
		}
		return nil
	}
	h.driver.mu.Unlock()
	// check checks a sandbox and ends each wait before a second check, which gets the truth. It returns the number of
	// waits.
	check := func(s *instance) (waited int) {
		checked, end := context.WithCancel(t.Context())
		go func() {
			defer end()
			h.k.deaths.check(s)
		}()
		for waits.Await(checked, recheckDelay) == nil {
			if s.life.Err() != nil {
				t.Errorf("%s ended before the second check", s.id)
			}
			lie.Store("")
			waits.Advance(recheckDelay)
			waited++
		}
		return waited
	}
	for i, id := range ids {
		s := h.k.index.lookup(mine, id)
		switch {
		case i < burstSize:
			h.driver.die(string(id), sandbox.ReasonKilled)
		case i == 5:
			h.driver.die(string(id), sandbox.ReasonOOM)
		default:
			lie.Store(string(id))
		}
		if waited := check(s); waited == 0 && i >= burstSize {
			t.Errorf("container %d was not checked again", i)
		}
	}
	for i, id := range ids {
		want, reason := berth.ContainerRunning, ""
		if i < burstSize {
			want, reason = berth.ContainerExpired, reasonKilled
		} else if i == 5 {
			want, reason = berth.ContainerExpired, reasonOOM
		}
		if got := h.get(id); got.Status != want || got.Berth.Reason != reason {
			t.Errorf("container %d: got %s, %q, want %s, %q", i, got.Status, got.Berth.Reason, want, reason)
		}
	}
}

// A pool does not discard sandboxes that cannot be reached temporarily.
func TestPoolOutlivesErrorsOfTheMachine(t *testing.T) {
	h := newHarness(t)
	s := h.k.leases.newInstance("", &berth.Container{ID: "cntr_pooled", MemoryLimit: "1g"})
	p := newPool(PoolOptions{}, h.k.pools)
	p.ready = []*instance{s}
	h.driver.mu.Lock()
	h.driver.fail = func(context.Context, string, string) error { return errors.Join(unix.EMFILE) }
	h.driver.mu.Unlock()
	p.check(s)
	if len(p.ready) != 1 || s.life.Err() != nil {
		t.Error("the sandbox was discarded")
	}
}

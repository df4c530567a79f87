package container

import (
	"context"
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// Failing to query sandboxes, because the machine lacks resources, ends none of them, whatever
// calls are made meanwhile.
func TestErrorsOfTheMachineEndNothing(t *testing.T) {
	for _, errno := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EIO, unix.EACCES, context.DeadlineExceeded} {
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

// Several sandboxes that seem to have ended at once are checked again, because the source may
// be wrong. Those that have ended are ended.
func TestDeathsAtOnceAreCheckedAgain(t *testing.T) {
	h := newHarness(t)
	var ids []berth.ContainerID
	for range 6 {
		ids = append(ids, h.ready())
	}
	for _, id := range ids[:burstSize] {
		h.driver.die(string(id), sandbox.ReasonKilled)
		h.k.deaths.check(h.k.index.lookup(mine, id))
	}
	var mu sync.Mutex
	lied := map[string]bool{}
	h.driver.mu.Lock()
	h.driver.fail = func(_ context.Context, op, id string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "stats" && !lied[id] {
			lied[id] = true
			return sandbox.ErrNotFound
		}
		return nil
	}
	h.driver.mu.Unlock()
	h.driver.die(string(ids[5]), sandbox.ReasonOOM)
	for _, id := range ids[burstSize:] {
		if s := h.k.index.lookup(mine, id); s != nil {
			h.k.deaths.check(s)
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
	p := &pool{group: h.k.pools, ready: []*instance{s}, wake: make(chan struct{}, 1)}
	h.driver.mu.Lock()
	h.driver.fail = func(context.Context, string, string) error { return errors.Join(unix.EMFILE) }
	h.driver.mu.Unlock()
	p.check(s)
	if len(p.ready) != 1 || s.life.Err() != nil {
		t.Error("the sandbox was discarded")
	}
}

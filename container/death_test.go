package container

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
)

func TestDeathIsNoticed(t *testing.T) {
	words := map[sandbox.Reason]string{sandbox.ReasonOOM: "memory limit of 1g", sandbox.ReasonKilled: "killed",
		sandbox.ReasonHost: "machine"}
	for reason, word := range words {
		for how, notice := range map[string]func(h *harness, id berth.ContainerID) error{
			"at use": func(h *harness, id berth.ContainerID) error {
				h.driver.die(string(id), reason)
				_, err := h.trySh(h.t.Context(), id, "c", "true")
				return err
			},
			"by the sweeper": func(h *harness, id berth.ContainerID) error {
				h.driver.die(string(id), reason)
				h.pass(checkInterval)
				_, err := h.trySh(h.t.Context(), id, "c", "true")
				return err
			},
			"during a command": func(h *harness, id berth.ContainerID) error {
				r := h.run(id)
				h.driver.die(string(id), reason)
				return <-r.done
			},
			"at an upload": func(h *harness, id berth.ContainerID) error {
				h.driver.die(string(id), reason)
				_, err := h.k.files.Put(h.t.Context(), mine, id, "a", strings.NewReader("a"))
				return err
			},
		} {
			t.Run(string(reason)+" "+how, func(t *testing.T) {
				h := newHarness(t)
				id := h.ready()
				err := notice(h, id)
				wantExpired(t, err, id, word)
				// The reported end is saved.
				if got := h.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != string(reason) {
					t.Errorf("got %s, reason %q", got.Status, got.Berth.Reason)
				}
				h.driver.until(0)
			})
		}
	}
}

func TestDelete(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.sh(id, "echo x >file")
	dir := h.driver.box(string(id)).dir
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || h.driver.box(string(id)) != nil {
		t.Errorf("the sandbox exists after Delete: %v", err)
	}
	wantError(t, h.k.Delete(t.Context(), mine, id), berth.CodeNotFound, "", string(id))
	_, err := h.k.Get(t.Context(), mine, id)
	wantError(t, err, berth.CodeNotFound, "", string(id))
	if !strings.Contains(h.log.String(), "reason=deleted") {
		t.Error("the log lacks the death")
	}
}

func TestDeleteExpired(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.pass(time.Hour)
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	h.driver.until(0)
	_, err := h.k.Get(t.Context(), mine, id)
	wantError(t, err, berth.CodeNotFound, "", string(id))
}

func TestDeleteDuringCommand(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	r := h.run(id)
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-r.done, berth.CodeNotFound, "", string(id))
	h.driver.until(0)
}

func TestDeleteWhileStarting(t *testing.T) {
	h := newHarness(t)
	starting := make(chan struct{})
	h.driver.fail = func(ctx context.Context, op, _ string) error {
		if op == "start" {
			close(starting)
			<-ctx.Done() // a start that would take long
			return ctx.Err()
		}
		return nil
	}
	c := h.create(CreateRequest{})
	<-starting
	if err := h.k.Delete(t.Context(), mine, c.ID); err != nil {
		t.Fatal(err)
	}
	h.driver.until(0)
}

func TestCreateDeleteRace(t *testing.T) {
	h := newHarness(t)
	var all sync.WaitGroup
	for range 40 {
		c := h.create(CreateRequest{})
		all.Go(func() {
			if err := h.k.Delete(t.Context(), mine, c.ID); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
		all.Go(func() {
			if _, err := h.trySh(t.Context(), c.ID, "c", "true"); err != nil &&
				berth.ErrorCode(err) != berth.CodeNotFound {
				t.Errorf("use: %v", err)
			}
		})
	}
	all.Wait()
	h.driver.until(0)
	if recs, err := h.store.RunningContainers(t.Context()); err != nil || len(recs) > 0 || len(h.k.index.all()) > 0 {
		t.Errorf("%d rows and %d instances are left, %v", len(recs), len(h.k.index.all()), err)
	}
}

// A sandbox that cannot be destroyed is retried.
func TestDestroyFails(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	other := h.ready()
	var mu sync.Mutex
	broken := true
	h.driver.fail = func(_ context.Context, op, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "destroy" && broken {
			return errHost
		}
		return nil
	}
	if err := h.k.Delete(t.Context(), mine, id); !errors.Is(err, errHost) {
		t.Errorf("Delete returned %v although the sandbox exists", err)
	}
	h.pass(time.Hour)
	h.settle() // both removals have failed
	if got := h.get(other); got.Berth.Reason != "expired" || h.driver.box(string(other)) == nil {
		t.Errorf("reason %q, sandbox %v", got.Berth.Reason, h.driver.box(string(other)))
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	h.pass(time.Second)
	h.driver.until(0)
	if !strings.Contains(h.log.String(), errHost.Error()) {
		t.Error("the log lacks the cause")
	}
}

// No sandbox is destroyed before its end is saved. The end is saved once the store works again.
func TestEndIsSavedFirst(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.store.failing(func(string) error { return errHost })
	h.pass(time.Hour)
	h.settle()
	if h.driver.count("destroy") > 0 {
		t.Error("destroyed before its end was saved")
	}
	_, err := h.trySh(t.Context(), id, "c", "true")
	wantExpired(t, err, id)
	h.store.failing(nil)
	h.pass(time.Second)
	h.driver.until(0)
	if got := h.get(id); got.Berth.Reason != "expired" {
		t.Errorf("reason %q", got.Berth.Reason)
	}
}

// The connection ends before the driver notices the death.
func TestDeathShowsLater(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	asked := 0
	h.driver.fail = func(_ context.Context, op, id string) error {
		if op == "stats" {
			if asked++; asked == 3 {
				h.driver.die(id, sandbox.ReasonOOM)
			}
		}
		return nil
	}
	h.driver.box(string(id)).disconnect()
	_, err := h.k.files.Put(t.Context(), mine, id, "a", strings.NewReader("a"))
	wantExpired(t, err, id, "memory limit")
}

package container

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
)

// A command that runs when the server dies is resumed by its call id.
func TestCrashDuringCommand(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	r := h.run(id)
	h.crash()
	if err := <-r.done; berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("the old server's call ended with %v", err)
	}
	h.start()
	os.Remove(filepath.Join(h.work(id), "held"))
	got, err := h.trySh(t.Context(), id, r.callID, untilReleased)
	if err != nil || got != "go\nend\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := h.sh(id, "cat ran"); got != "ran\n" {
		t.Errorf("the command left %q, want one run", got)
	}
}

// Start reconciles rows and sandboxes, whichever is missing.
func TestStartReconciles(t *testing.T) {
	h := newHarness(t)
	alive, lost, dead, half := h.ready(), h.ready(), h.ready(), h.ready()
	h.pass(19 * time.Minute)
	h.crash()
	h.driver.die(string(dead), sandbox.ReasonOOM)
	if err := h.driver.Destroy(t.Context(), string(lost)); err != nil {
		t.Fatal(err)
	}
	if err := h.driver.Create(t.Context(), sandbox.Spec{ID: "cntr_unowned"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.UpdateContainer(t.Context(), mine, half, func(c *berth.Container) error {
		c.Berth.Starting = true // the server died during its start
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// as older servers did, which had none
	if err := h.store.DeleteObject(t.Context(), mine, startKey(half)); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.now = h.now.Add(time.Hour) // the server starts again an hour later
	h.mu.Unlock()
	h.start()
	h.driver.until(1)
	if h.driver.box(string(alive)) == nil {
		t.Error("the living sandbox was destroyed")
	}
	for id, reason := range map[berth.ContainerID]string{lost: "host", dead: "oom", half: "host"} {
		if got := h.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != reason {
			t.Errorf("got %s, reason %q, want %q", got.Status, got.Berth.Reason, reason)
		}
	}
	h.pass(restartGrace - time.Second) // idle for long, but an interrupted run may resume it
	if got := h.sh(alive, "echo here"); got != "here\n" {
		t.Errorf("got %q", got)
	}
	h.pass(20 * time.Minute)
	h.driver.until(0)
}

func TestClose(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.pass(5 * time.Second)
	h.sh(id, "true")
	r := h.run(id)
	if err := h.k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-r.done; berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("a running call ended with %v", err)
	}
	_, err := h.k.Create(t.Context(), byMe, CreateRequest{})
	wantError(t, err, berth.CodeUnavailable, "", "stopping")
	_, err = h.trySh(t.Context(), id, "c", "true")
	wantError(t, err, berth.CodeUnavailable, "", "stopping")
	if got := h.get(id); got.Status != berth.ContainerRunning || got.LastActiveAt != h.time().Unix() {
		t.Errorf("got %s, last active %d, want it running and %d", got.Status, got.LastActiveAt, h.time().Unix())
	}
	if err := h.k.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	h.start()
	os.Remove(filepath.Join(h.work(id), "held"))
	if got := h.sh(id, "cat ran"); got != "ran\n" {
		t.Errorf("after Close and Start: %q", got)
	}
}

// Close waits for containers that are being started.
func TestCloseWaitsForStart(t *testing.T) {
	h := newHarness(t)
	starting, gate := make(chan struct{}), make(chan struct{})
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op == "start" {
			close(starting)
			<-gate
		}
		return nil
	}
	c := h.create(CreateRequest{})
	<-starting
	closed := make(chan error)
	go func() { closed <- h.k.Close() }()
	<-h.k.work.closing
	close(gate)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	h.start()
	if got := h.sh(c.ID, "echo here"); got != "here\n" {
		t.Errorf("got %q", got)
	}
}

func TestNewRefuses(t *testing.T) {
	h := newHarness(t)
	if _, err := New(Options{Store: h.store}); err == nil {
		t.Error("New accepts options without a driver")
	}
	bad := h.opts
	bad.Expiry.IdleMinutes, bad.Expiry.MaxIdleMinutes = 30, 20
	if _, err := New(bad); err == nil {
		t.Error("New accepts a default above the maximum")
	}
}

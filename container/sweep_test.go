package container

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

func TestExpiry(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.pass(20*time.Minute - time.Second)
	if got := h.get(id); got.Status != berth.ContainerRunning {
		t.Fatalf("expired early: %+v", got)
	}
	h.pass(time.Second)
	h.driver.until(0)
	got := h.get(id)
	if got.Status != berth.ContainerExpired || got.Berth.Reason != "expired" {
		t.Errorf("got %s, reason %q", got.Status, got.Berth.Reason)
	}
	_, err := h.trySh(t.Context(), id, "c", "true")
	wantExpired(t, err, id, "not used for 20 minutes")
	if !strings.Contains(h.log.String(),
		`msg="container ended" container=`+string(id)+" project=proj_mine reason=expired") {
		t.Errorf("the log lacks the death:\n%s", h.log)
	}
	if got, err := h.k.Get(t.Context(), mine, id); err != nil || got.Status != berth.ContainerExpired {
		t.Errorf("the object: got %+v, %v", got, err)
	}
}

// Retrieving a container counts as a use, and so do files and commands.
func TestUseKeepsAlive(t *testing.T) {
	for name, use := range map[string]func(h *harness, id berth.ContainerID) error{
		"get": func(h *harness, id berth.ContainerID) error { _, err := h.k.Get(h.t.Context(), mine, id); return err },
		"shell": func(h *harness, id berth.ContainerID) error {
			_, err := h.trySh(h.t.Context(), id, "c", "true")
			return err
		},
		"put": func(h *harness, id berth.ContainerID) error {
			_, err := h.k.files.Put(h.t.Context(), mine, id, "a", strings.NewReader(""))
			return err
		},
		"provide": func(h *harness, id berth.ContainerID) error {
			_, err := h.k.provider.Provide(h.t.Context(), byMe,
				berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}, id)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			id := h.ready()
			h.pass(19 * time.Minute)
			if err := use(h, id); err != nil {
				t.Fatal(err)
			}
			h.pass(19 * time.Minute)
			if got := h.get(id); got.Status != berth.ContainerRunning {
				t.Error("expired in use")
			}
			h.pass(time.Minute)
			h.driver.until(0)
		})
	}
}

func TestCommandHoldsContainer(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	r := h.run(id)
	h.pass(24 * time.Hour)
	if got := h.get(id); got.Status != berth.ContainerRunning {
		t.Fatal("expired while a command ran")
	}
	if c, err := h.k.Get(t.Context(), mine, id); err != nil || c.LastActiveAt != h.time().Unix() {
		t.Errorf("last_active_at is %d behind, %v", h.time().Unix()-c.LastActiveAt, err)
	}
	os.Remove(filepath.Join(h.work(id), "held"))
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	h.pass(19 * time.Minute)
	if got := h.get(id); got.Status != berth.ContainerRunning {
		t.Error("expired before its idle time was over")
	}
	h.pass(time.Minute)
	h.driver.until(0)
}

// A container ends on time although somebody looks at it again and again; to get it is a use.
func TestLookIsNoUse(t *testing.T) {
	h := newHarness(t)
	for name, get := range map[string]func(context.Context, berth.ProjectID, berth.ContainerID) (*berth.Container, error){
		"look": h.k.Look, "get": h.k.Get} {
		id := h.ready()
		made := h.get(id).LastActiveAt
		h.pass(19 * time.Minute)
		c, err := get(t.Context(), mine, id)
		if err != nil {
			t.Fatal(err)
		}
		if used := c.LastActiveAt != made; used != (name == "get") {
			t.Errorf("%s: used %v", name, used)
		}
		h.pass(time.Minute)
		if ended := h.get(id).Status != berth.ContainerRunning; ended != (name == "look") {
			t.Errorf("%s: ended %v", name, ended)
		}
		h.pass(24 * time.Hour)
		h.driver.until(0)
	}
	if _, err := h.k.Look(t.Context(), "proj_other", h.ready()); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("of another project: %v", err)
	}
}

// However often a container is used, its activity is written at most once a second, and every
// half minute while it is in use.
func TestActivityIsSavedSeldom(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	before := h.store.count()
	for range 50 {
		h.sh(id, "true")
		h.pass(0)
	}
	if n := h.store.count() - before; n > 0 {
		t.Errorf("%d writes within the second of creation", n)
	}
	h.pass(time.Second)
	for range 50 {
		h.sh(id, "true")
		h.pass(0)
	}
	if n := h.store.count() - before; n != 1 {
		t.Errorf("%d writes within a second, want 1", n)
	}
	if got := h.get(id).LastActiveAt; got != h.time().Unix() {
		t.Errorf("stored %d, want %d", got, h.time().Unix())
	}
	before = h.store.count()
	r := h.run(id)
	for range 60 {
		h.pass(time.Second)
	}
	if n := h.store.count() - before; n != 2 {
		t.Errorf("%d writes in a minute of use, want 2", n)
	}
	os.Remove(filepath.Join(h.work(id), "held"))
	<-r.done
}

// In a race, a container either expires or is used, never both.
func TestExpiryUseRace(t *testing.T) {
	h := newHarness(t)
	for range 30 {
		id := h.ready()
		h.mu.Lock()
		h.now = h.now.Add(time.Hour)
		h.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() { h.k.sweeper.sweep(t.Context()) })
		both.Go(func() {
			client, release, err := h.k.access.Guest(t.Context(), berth.Caller{Project: mine}, id)
			if err != nil {
				wantExpired(t, err, id)
				return
			}
			defer release()
			h.k.sweeper.sweep(t.Context())
			if err := client.Ping(t.Context()); err != nil {
				t.Errorf("a held container was destroyed: %v", err)
			}
		})
		both.Wait()
	}
}

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox/driver"
)

func TestExpiry(t *testing.T) {
	h := newHouse(t)
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
	if !strings.Contains(h.log.String(), `msg="container ended" container=`+string(id)+" project=proj_mine reason=expired") {
		t.Errorf("the log does not state the death:\n%s", h.log)
	}
	if got, err := h.k.Get(t.Context(), mine, id); err != nil || got.Status != berth.ContainerExpired {
		t.Errorf("the object: got %+v, %v", got, err)
	}
}

// Retrieving a container counts as a use, and so do files and commands.
func TestUseKeepsAlive(t *testing.T) {
	for name, use := range map[string]func(h *house, id berth.ContainerID) error{
		"get":   func(h *house, id berth.ContainerID) error { _, err := h.k.Get(h.t.Context(), mine, id); return err },
		"shell": func(h *house, id berth.ContainerID) error { _, err := h.trySh(h.t.Context(), id, "c", "true"); return err },
		"put": func(h *house, id berth.ContainerID) error {
			_, err := h.k.PutFile(h.t.Context(), mine, id, "a", strings.NewReader(""))
			return err
		},
		"provide": func(h *house, id berth.ContainerID) error {
			_, err := h.k.Provide(h.t.Context(), mine, berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}, id)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			id := h.ready()
			h.pass(19 * time.Minute)
			if err := use(h, id); err != nil {
				t.Fatal(err)
			}
			h.pass(19 * time.Minute)
			if got := h.get(id); got.Status != berth.ContainerRunning {
				t.Error("it expired in use")
			}
			h.pass(time.Minute)
			h.driver.until(0)
		})
	}
}

func TestCommandHoldsContainer(t *testing.T) {
	h := newHouse(t)
	id := h.ready()
	r := h.run(id)
	h.pass(24 * time.Hour)
	if got := h.get(id); got.Status != berth.ContainerRunning {
		t.Fatal("it expired under a command")
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
		t.Error("it expired without having been idle for long enough")
	}
	h.pass(time.Minute)
	h.driver.until(0)
}

// However often a container is used, its activity is written once a second, and
// every half minute while it is in use.
func TestActivityIsSavedSeldom(t *testing.T) {
	h := newHouse(t)
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

func TestDeathIsNoticed(t *testing.T) {
	words := map[driver.Reason]string{driver.ReasonOOM: "memory limit of 1g", driver.ReasonKilled: "killed", driver.ReasonHost: "machine"}
	for reason, word := range words {
		for how, notice := range map[string]func(h *house, id berth.ContainerID) error{
			"at use": func(h *house, id berth.ContainerID) error {
				h.driver.die(string(id), reason)
				_, err := h.trySh(h.t.Context(), id, "c", "true")
				return err
			},
			"by the sweeper": func(h *house, id berth.ContainerID) error {
				h.driver.die(string(id), reason)
				h.pass(checkEvery)
				_, err := h.trySh(h.t.Context(), id, "c", "true")
				return err
			},
			"during a command": func(h *house, id berth.ContainerID) error {
				r := h.run(id)
				h.driver.die(string(id), reason)
				return <-r.done
			},
			"at an upload": func(h *house, id berth.ContainerID) error {
				h.driver.die(string(id), reason)
				_, err := h.k.PutFile(h.t.Context(), mine, id, "a", strings.NewReader("a"))
				return err
			},
		} {
			t.Run(string(reason)+" "+how, func(t *testing.T) {
				h := newHouse(t)
				id := h.ready()
				err := notice(h, id)
				wantExpired(t, err, id, word)
				h.driver.until(0)
				if got := h.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != string(reason) {
					t.Errorf("got %s, reason %q", got.Status, got.Berth.Reason)
				}
			})
		}
	}
}

// A lost connection is not a death: the guest is reached again.
func TestConnectionIsMadeAgain(t *testing.T) {
	h := newHouse(t)
	id := h.ready()
	r := h.run(id)
	b := h.driver.box(string(id))
	b.mu.Lock()
	for _, c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	os.Remove(filepath.Join(h.work(id), "held"))
	if err := <-r.done; err != nil {
		t.Errorf("the call ended with %v", err)
	}
	if got := h.sh(id, "wc -l <ran"); strings.TrimSpace(got) != "1" {
		t.Errorf("the command ran %s times", got)
	}
}

func TestDelete(t *testing.T) {
	h := newHouse(t)
	id := h.ready()
	h.sh(id, "echo x >file")
	dir := h.driver.box(string(id)).dir
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || h.driver.box(string(id)) != nil {
		t.Errorf("the sandbox is still there when Delete returns: %v", err)
	}
	wantError(t, h.k.Delete(t.Context(), mine, id), berth.CodeNotFound, "", string(id))
	_, err := h.k.Get(t.Context(), mine, id)
	wantError(t, err, berth.CodeNotFound, "", string(id))
	if !strings.Contains(h.log.String(), "reason=deleted") {
		t.Error("the log does not state the death")
	}
}

func TestDeleteExpired(t *testing.T) {
	h := newHouse(t)
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
	h := newHouse(t)
	id := h.ready()
	r := h.run(id)
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-r.done, berth.CodeNotFound, "", string(id))
	h.driver.until(0)
}

func TestDeleteWhileStarting(t *testing.T) {
	h := newHouse(t)
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
	h := newHouse(t)
	var all sync.WaitGroup
	for range 40 {
		c := h.create(CreateRequest{})
		all.Go(func() {
			if err := h.k.Delete(t.Context(), mine, c.ID); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
		all.Go(func() {
			if _, err := h.trySh(t.Context(), c.ID, "c", "true"); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
				t.Errorf("use: %v", err)
			}
		})
	}
	all.Wait()
	h.driver.until(0)
	if recs, err := h.store.RunningContainers(t.Context()); err != nil || len(recs) > 0 || len(h.k.all()) > 0 {
		t.Errorf("%d rows and %d in the books are left, %v", len(recs), len(h.k.all()), err)
	}
}

// A container expires or is used, never both.
func TestExpiryUseRace(t *testing.T) {
	h := newHouse(t)
	for range 30 {
		id := h.ready()
		h.mu.Lock()
		h.now = h.now.Add(time.Hour)
		h.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() { h.k.sweep(t.Context()) })
		both.Go(func() {
			client, release, err := h.k.Guest(t.Context(), mine, id)
			if err != nil {
				wantExpired(t, err, id)
				return
			}
			defer release()
			h.k.sweep(t.Context())
			if err := client.Ping(t.Context()); err != nil {
				t.Errorf("a held container was destroyed: %v", err)
			}
		})
		both.Wait()
	}
}

// What cannot be destroyed is not forgotten.
func TestDestroyFails(t *testing.T) {
	h := newHouse(t)
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
		t.Errorf("Delete said %v although the sandbox is left", err)
	}
	h.pass(time.Hour)
	if got := h.get(other); got.Berth.Reason != "expired" || h.driver.box(string(other)) == nil {
		t.Errorf("reason %q, sandbox %v", got.Berth.Reason, h.driver.box(string(other)))
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	h.settle()
	h.pass(time.Second)
	h.driver.until(0)
	if !strings.Contains(h.log.String(), errHost.Error()) {
		t.Error("the log does not say why")
	}
}

// No sandbox is destroyed before its end is saved, and the end is saved when the
// store can again.
func TestEndIsSavedFirst(t *testing.T) {
	h := newHouse(t)
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

// A command that runs when the server dies is found again by its call id.
func TestCrashDuringCommand(t *testing.T) {
	h := newHouse(t)
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
		t.Errorf("the command left %q: it did not run once", got)
	}
}

// Start agrees rows and sandboxes, whichever is missing.
func TestStartReconciles(t *testing.T) {
	h := newHouse(t)
	alive, lost, dead, half := h.ready(), h.ready(), h.ready(), h.ready()
	h.pass(19 * time.Minute)
	h.crash()
	h.driver.die(string(dead), driver.ReasonOOM)
	if err := h.driver.Destroy(t.Context(), string(lost)); err != nil {
		t.Fatal(err)
	}
	if err := h.driver.Create(t.Context(), driver.Spec{ID: "cntr_unowned"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.UpdateContainer(t.Context(), mine, half, func(c *berth.Container) error {
		c.Berth.Starting = true // the server died while it was started
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.now = h.now.Add(time.Hour) // until somebody starts the server again
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
	h.pass(respite - time.Second) // idle for long, but a run may want it back
	if got := h.sh(alive, "echo here"); got != "here\n" {
		t.Errorf("got %q", got)
	}
	h.pass(20 * time.Minute)
	h.driver.until(0)
}

func TestClose(t *testing.T) {
	h := newHouse(t)
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
	_, err := h.k.Create(t.Context(), mine, CreateRequest{})
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

// What is being started when the server stops is waited for.
func TestCloseWaitsForStart(t *testing.T) {
	h := newHouse(t)
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
	<-h.k.closing
	close(gate)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	h.start()
	if got := h.sh(c.ID, "echo here"); got != "here\n" {
		t.Errorf("got %q", got)
	}
}

func TestCancelAndForget(t *testing.T) {
	h := newHouse(t)
	id := h.ready()
	r := h.run(id)
	shell := h.k.Shell(mine, id)
	if err := shell.Cancel(t.Context(), r.callID); err != nil {
		t.Fatal(err)
	}
	if err := <-r.done; err != nil {
		t.Errorf("the cancelled call ended with %v", err)
	}
	if err := shell.Cancel(t.Context(), "call_none"); err != nil {
		t.Errorf("cancelling what is not there: %v", err)
	}
	shell.Forget(t.Context(), r.callID)
	for _, err := range shell.Shell(t.Context(), guest.ShellCall{CallID: r.callID}) {
		if err == nil {
			t.Error("the call is still known")
		}
	}
}

func TestNewKeeperRefuses(t *testing.T) {
	h := newHouse(t)
	if _, err := NewKeeper(Options{Store: h.store}); err == nil {
		t.Error("a keeper without a driver was made")
	}
	bad := h.opts
	bad.IdleMinutes, bad.MaxIdleMinutes = 30, 20
	if _, err := NewKeeper(bad); err == nil {
		t.Error("a default above the maximum was accepted")
	}
}

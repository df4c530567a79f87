package container

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

const sleepAfter = 30 * time.Second

func sleeps(o *Options) { o.SleepAfter = sleepAfter }

// quiet lets so much time pass that a quiet container sleeps.
func (h *harness) quiet() {
	h.pass(time.Second)
	h.pass(sleepAfter / 2)
	h.pass(sleepAfter / 2)
}

// asleep reports whether a container sleeps, and checks what its object shows.
func (h *harness) asleep(id berth.ContainerID) bool {
	h.t.Helper()
	page, _, err := h.k.List(h.t.Context(), mine, "", store.Page{Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range page {
		if c.ID != id {
			continue
		}
		if c.Status != berth.ContainerRunning || c.Berth.Paused {
			h.t.Errorf("got %+v, want a running container that is not paused", c)
		}
		if is := h.state(id) == sandbox.StatePaused; is != c.Berth.Asleep {
			h.t.Errorf("shown as asleep: %v, paused: %v", c.Berth.Asleep, is)
		}
		return c.Berth.Asleep
	}
	h.t.Fatalf("no container %s", id)
	return false
}

func (h *harness) state(id berth.ContainerID) sandbox.State {
	b := h.driver.box(string(id))
	h.driver.mu.Lock()
	defer h.driver.mu.Unlock()
	return b.state
}

// sleep makes a container sleep.
func (h *harness) sleep(id berth.ContainerID) {
	h.t.Helper()
	// The end of an idle stream to the guest is a use too.
	for range 100 {
		if h.quiet(); h.asleep(id) {
			return
		}
	}
	h.t.Fatal("a quiet container does not sleep")
}

// Any use wakes a container that sleeps.
func TestSleep(t *testing.T) {
	h, _ := newArchive(t, sleeps)
	id := h.ready()
	f := h.put(id, "a", "a")
	for name, use := range map[string]func() error{
		"resume": func() error { _, err := h.k.Resume(t.Context(), mine, id); return err },
		"shell": func() error {
			_, err := h.trySh(t.Context(), id, berth.NewID(berth.PrefixShellCall), "cat a")
			return err
		},
		"file":     func() error { _, err := h.k.files.Get(t.Context(), mine, id, f.ID); return err },
		"snapshot": func() error { h.snapshot(id); return nil },
		"fork": func() error {
			_, err := h.k.Fork(t.Context(), byMe, id, ForkRequest{})
			return err
		},
		"port": func() error {
			_, release, err := h.k.access.Port(t.Context(), berth.Caller{Project: mine}, id, 1)
			if err == nil {
				release()
			}
			return err
		},
	} {
		h.sleep(id)
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if h.asleep(id) {
			t.Errorf("asleep after %s", name)
		}
	}
}

// Reading the object of a container is not a use that wakes it.
func TestSleepGet(t *testing.T) {
	h := newHarness(t, sleeps)
	id := h.ready()
	h.sleep(id)
	if c, err := h.k.Get(t.Context(), mine, id); err != nil || !c.Berth.Asleep {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := h.k.Stats(t.Context(), mine, id); err != nil {
		t.Error(err)
	}
	if !h.asleep(id) {
		t.Error("awake")
	}
	if all := h.k.Readings(t.Context()); len(all) != 1 || !all[0].Asleep {
		t.Errorf("got %+v", all)
	}
}

// A connection to a port stays open while the container sleeps, and its next byte wakes it.
func TestSleepKeepsConnections(t *testing.T) {
	h := newHarness(t, sleeps)
	id := h.ready()
	conn := h.connect(id, echoPort(t))
	defer conn.Close()
	for range 3 {
		echoes(t, conn)
		if h.asleep(id) {
			t.Error("asleep after a byte to a port")
		}
		h.sleep(id)
	}
}

// echoPort returns a port on which all data is returned.
func echoPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// connect connects to a port of a container, which the connection does not hold.
func (h *harness) connect(id berth.ContainerID, port int) net.Conn {
	h.t.Helper()
	dial, release, err := h.k.access.Port(h.t.Context(), berth.Caller{Project: mine}, id, port)
	if err != nil {
		h.t.Fatal(err)
	}
	defer release()
	conn, err := dial(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return conn
}

func echoes(t *testing.T, conn net.Conn) {
	t.Helper()
	got := make([]byte, 4)
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Error(err)
	} else if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
		t.Errorf("got %q, %v", got, err)
	}
}

// What keeps a container awake.
func TestSleepNot(t *testing.T) {
	awake := CreateRequest{Source: berth.ContainerSource{KeepAwake: true}}
	for name, c := range map[string]struct {
		req     CreateRequest
		options func(*Options)
		before  func(h *harness, id berth.ContainerID)
		during  func(h *harness, id berth.ContainerID)
	}{
		"keep_awake":                 {req: awake},
		"turned off":                 {options: func(o *Options) { o.SleepAfter = 0 }},
		"a driver that cannot pause": {before: func(h *harness, _ berth.ContainerID) { h.driver.busyOnly.Store(true) }},
		"a command":                  {before: func(h *harness, id berth.ContainerID) { h.run(id) }},
		"a computing process": {during: func(h *harness, id berth.ContainerID) {
			h.driver.mu.Lock()
			h.driver.boxes[string(id)].cpu += time.Second
			h.driver.mu.Unlock()
		}},
		"uses": {during: func(h *harness, id berth.ContainerID) { h.sh(id, "true") }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, append([]func(*Options){sleeps}, optional(c.options)...)...)
			id := h.create(c.req).ID
			_, release, err := h.k.access.Guest(t.Context(), berth.Caller{Project: mine}, id)
			if err != nil {
				t.Fatal(err)
			}
			release()
			if c.before != nil {
				c.before(h, id)
			}
			for range 20 {
				h.pass(sleepAfter / 2)
				if h.asleep(id) {
					t.Fatal("asleep")
				}
				if c.during != nil {
					c.during(h, id)
				}
			}
			if n := h.driver.count("pause"); n != 0 {
				t.Errorf("paused %d times", n)
			}
		})
	}
}

func optional(f func(*Options)) []func(*Options) {
	if f == nil {
		return nil
	}
	return []func(*Options){f}
}

// A sandbox that cannot be paused runs on.
func TestSleepFails(t *testing.T) {
	h := newHarness(t, sleeps)
	id := h.ready()
	h.driver.mu.Lock()
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op == "pause" {
			return errHost
		}
		return nil
	}
	h.driver.mu.Unlock()
	for range 20 {
		h.quiet()
	}
	if h.asleep(id) || !strings.Contains(h.log.String(), "failed to pause a quiet container") {
		t.Errorf("asleep, or not logged: %s", h.log)
	}
	if got := h.sh(id, "echo on"); got != "on\n" {
		t.Errorf("got %q", got)
	}
}

// A container that cannot be woken reports it, and one that died while it slept reports why.
func TestWakeFails(t *testing.T) {
	h := newHarness(t, sleeps)
	id := h.ready()
	h.sleep(id)
	h.driver.mu.Lock()
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op == "resume" {
			return errHost
		}
		return nil
	}
	h.driver.mu.Unlock()
	_, err := h.trySh(t.Context(), id, "c", "true")
	wantError(t, err, berth.CodeUnavailable, "", "could not be resumed.")
	h.driver.mu.Lock()
	h.driver.fail = nil
	h.driver.mu.Unlock()
	if got := h.sh(id, "echo on"); got != "on\n" {
		t.Errorf("got %q", got)
	}
	h.sleep(id)
	h.driver.die(string(id), sandbox.ReasonOOM)
	_, err = h.trySh(t.Context(), id, "c", "true")
	wantExpired(t, err, id, "memory limit")
}

// A client may pause a container that sleeps. Its connections then end.
func TestSleepThenPause(t *testing.T) {
	h := newHarness(t, sleeps)
	id := h.ready()
	h.sleep(id)
	h.pause(id)
	if !h.isPaused(id) {
		t.Error("not paused")
	}
	if got := h.sh(id, "echo on"); got != "on\n" || h.isPaused(id) {
		t.Errorf("got %q", got)
	}
	h.sleep(id)
}

// A container that sleeps expires.
func TestSleepThenExpire(t *testing.T) {
	h := newHarness(t, sleeps)
	id := h.ready()
	h.sleep(id)
	h.pass(time.Hour)
	h.settle()
	if c := h.get(id); c.Status != berth.ContainerExpired || c.Berth.Reason != reasonExpired || c.Berth.Asleep {
		t.Errorf("got %+v", c)
	}
}

// Another server continues containers that sleep as such, and paused ones as paused. It wakes
// those that sleep if they may not.
func TestSleepCrash(t *testing.T) {
	h := newHarness(t, sleeps)
	paused, asleep, resumed := h.ready(), h.ready(), h.ready()
	h.pause(paused)
	h.pause(resumed)
	h.sh(resumed, "true")
	h.sleep(asleep)
	h.crash()
	h.start()
	if !h.isPaused(paused) || !h.asleep(asleep) {
		t.Error("awake after a restart")
	}
	for _, id := range []berth.ContainerID{paused, asleep, resumed} {
		if got := h.sh(id, "echo on"); got != "on\n" {
			t.Errorf("got %q", got)
		}
	}
	h.sleep(resumed) // shown as asleep, not as paused
	h.crash()
	h.start()
	if !h.asleep(resumed) {
		t.Error("awake after a restart")
	}
	h.crash()
	h.opts.SleepAfter = 0
	h.start()
	for h.state(resumed) == sandbox.StatePaused {
		h.driver.idle()
	}
	if h.asleep(resumed) {
		t.Error("asleep, but containers may not")
	}
}

// An awakeConn is the server's end of a connection. Nothing may be sent to a guest that sleeps.
type awakeConn struct {
	net.Conn
	h *harness
}

func (c awakeConn) Write(p []byte) (int, error) {
	for _, s := range c.h.k.index.all() {
		if c.h.state(s.id) == sandbox.StatePaused {
			c.h.t.Errorf("%x is sent to a paused guest", p[:min(len(p), 12)])
		}
	}
	return c.Conn.Write(p)
}

// Uses at the moment at which a container falls asleep are answered, and nothing is sent to it
// before it is awake.
func TestSleepRaces(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.SleepAfter = time.Nanosecond })
	h.driver.wrapOwn = func(c net.Conn) net.Conn { return awakeConn{c, h} }
	var mu sync.Mutex
	asleep := make(chan struct{}) // closed and replaced when the container is being paused
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op == "pause" {
			mu.Lock()
			defer mu.Unlock()
			close(asleep)
			asleep = make(chan struct{})
		}
		return nil
	}
	untilSleep := func() {
		mu.Lock()
		wait := asleep
		mu.Unlock()
		select {
		case <-wait:
		case <-time.After(time.Second): // another user keeps it awake
		}
	}
	id := h.ready()
	port := echoPort(t)
	ended := make(chan struct{})
	var users, sweeper sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				h.pass(time.Microsecond) // less than the container lives, however often it runs
			}
		}
	})
	for range 2 {
		users.Go(func() {
			for range 30 {
				untilSleep()
				if got := h.sh(id, "echo on"); got != "on\n" {
					t.Errorf("got %q", got)
				}
			}
		})
		users.Go(func() {
			conn := h.connect(id, port)
			defer conn.Close()
			for range 30 {
				untilSleep()
				echoes(t, conn)
			}
		})
	}
	users.Wait()
	close(ended)
	sweeper.Wait()
	if h.driver.count("resume") == 0 {
		t.Error("it never slept")
	}
}

package container

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A stopping guest answers except between stop and continue.
type stopping struct {
	stopped atomic.Bool
	change  chan struct{} // closed when it continues
}

// conn returns a connection that blocks while the guest is stopped.
func (g *stopping) conn(c net.Conn) net.Conn { return &stoppedConn{c, g} }

type stoppedConn struct {
	net.Conn
	guest *stopping
}

func (c *stoppedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.guest.stopped.Load() {
		<-c.guest.change
	}
	return n, err
}

// If a container's guest is stopped, a pending call fails after the guest's time to answer, and
// other calls fail immediately. Deleting it works, and so do calls after it continues.
func TestStoppedGuest(t *testing.T) {
	h := newHarness(t)
	g := &stopping{change: make(chan struct{})}
	h.driver.wrap = g.conn
	id := h.ready()
	h.sh(id, "echo precious >file")
	r := h.run(id) // a command that runs on
	g.stopped.Store(true)
	s := h.k.index.lookup(mine, id)
	h.k.prober.probeIfDue(s) // a user has acquired it
	h.pass(silentAfter)
	err := <-r.done
	wantError(t, err, berth.CodeUnavailable, "", "does not answer")

	began := time.Now()
	for range 20 {
		_, err := h.trySh(t.Context(), id, "next", "true")
		wantError(t, err, berth.CodeUnavailable, "", "does not answer")
		_, _, err = h.k.files.List(t.Context(), mine, id, store.Page{Limit: 1})
		wantError(t, err, berth.CodeUnavailable, "", "does not answer")
		_, _, err = h.k.access.Guest(t.Context(), berth.Caller{Project: mine}, id)
		wantError(t, err, berth.CodeUnavailable, "", "does not answer")
	}
	if took := time.Since(began); took > probeTimeout {
		t.Errorf("later calls take %v together", took)
	}
	if got := h.get(id); got.Status != berth.ContainerRunning {
		t.Errorf("got %s, %q", got.Status, got.Berth.Reason)
	}

	g.stopped.Store(false)
	close(g.change)
	for s.silentError() != nil {
		h.k.sweeper.sweep(t.Context())
		if t.Context().Err() != nil {
			t.Fatal("the container is still silent")
		}
	}
	if got := h.sh(id, "cat file"); got != "precious\n" {
		t.Errorf("afterwards: got %q", got)
	}
}

// On a machine whose CPUs are all busy, a guest has longer to answer: a guest that gets no CPU
// time is not dead.
func TestStarvedGuest(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.pressure = func() float64 { return 0.99 } })
	g := &stopping{change: make(chan struct{})}
	h.driver.wrap = g.conn
	id := h.ready()
	r := h.run(id) // a command that runs on
	g.stopped.Store(true)
	t.Cleanup(func() { close(g.change) })
	s := h.k.index.lookup(mine, id)
	h.k.prober.probeIfDue(s) // a user has acquired it
	h.pass(3 * silentAfter)
	h.k.prober.markSilent(s, h.k.prober.patience(t.Context(), s))
	if err := s.silentError(); err != nil {
		t.Errorf("after %v: %v", 3*silentAfter, err)
	}
	h.pass(3 * silentAfter)
	h.k.prober.markSilent(s, h.k.prober.patience(t.Context(), s))
	wantError(t, s.silentError(), berth.CodeUnavailable, "", "does not answer")
	<-r.done
}

// The CPU pressure of the sandbox, if the driver reports it, decides how long a guest has to
// answer: a busy neighbor does not delay finding a stopped guest.
func TestPatienceBySandbox(t *testing.T) {
	for _, tt := range []struct {
		own  *float64
		want time.Duration
	}{
		{nil, maxSlack * silentAfter},
		{new(float64), silentAfter},
		{new(0.5), 2 * silentAfter},
		{new(1.0), maxSlack * silentAfter},
	} {
		t.Run(tt.want.String(), func(t *testing.T) {
			h := newHarness(t, func(o *Options) { o.pressure = func() float64 { return 0.99 } })
			h.driver.pressure = tt.own
			s := h.k.index.lookup(mine, h.ready())
			if got := h.k.prober.patience(t.Context(), s).Round(time.Millisecond); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestParsePressure(t *testing.T) {
	for text, want := range map[string]float64{
		"some avg10=98.60 avg60=98.79 avg300=97.74 total=12140991474\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n": 0.986,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n":                                                              0,
		"some avg10=NaN avg60=0": 0, "some avg10=1e9 ": 0, "": 0,
	} {
		if got := parsePressure(text); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("parsePressure(%q) = %v, want %v", text, got, want)
		}
	}
}

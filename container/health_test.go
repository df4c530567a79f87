package container

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A stopping guest answers until it is stopped, and again when it goes on.
type stopping struct {
	stopped atomic.Bool
	change  chan struct{} // closed when it goes on
}

// conn passes on what the guest says, unless it is stopped.
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

// A container whose guest is stopped fails the call that waits, by the time that a guest
// has to answer, and every other at once; deleting it works, and so does what comes after
// it goes on.
func TestStoppedGuest(t *testing.T) {
	h := newHouse(t)
	g := &stopping{change: make(chan struct{})}
	h.driver.wrap = g.conn
	id := h.ready()
	h.sh(id, "echo precious >file")
	r := h.run(id) // a command that lasts
	g.stopped.Store(true)
	s := h.k.index.lookup(mine, id)
	h.k.leases.probeIfDue(s) // it has come into use
	h.pass(silentAfter)
	err := <-r.done
	wantError(t, err, berth.CodeUnavailable, "", "does not answer")

	began := time.Now()
	for range 20 {
		_, err := h.trySh(t.Context(), id, "next", "true")
		wantError(t, err, berth.CodeUnavailable, "", "does not answer")
		_, _, err = h.k.files.List(t.Context(), mine, id, store.Page{Limit: 1})
		wantError(t, err, berth.CodeUnavailable, "", "does not answer")
		_, _, err = h.k.access.Guest(t.Context(), mine, id)
		wantError(t, err, berth.CodeUnavailable, "", "does not answer")
	}
	if took := time.Since(began); took > probeTimeout {
		t.Errorf("calls that follow take %v together", took)
	}
	if got := h.get(id); got.Status != berth.ContainerRunning {
		t.Errorf("got %s, %q", got.Status, got.Berth.Reason)
	}

	g.stopped.Store(false)
	close(g.change)
	for s.silentError() != nil {
		h.k.sweeper.sweep(t.Context())
		if t.Context().Err() != nil {
			t.Fatal("the container stays silent")
		}
	}
	if got := h.sh(id, "cat file"); got != "precious\n" {
		t.Errorf("afterwards: got %q", got)
	}
}

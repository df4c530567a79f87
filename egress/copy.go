package egress

import (
	"io"
	"net"
	"sync"
	"time"
)

// Buffers of connections that are quiet are small; where much passes they are
// large, because each write is a frame of the guest's connection. A connection whose
// host takes nothing keeps its buffer: so of a container's only some are large.
const (
	quietBuffer = 8 << 10
	busyBuffer  = 128 << 10
	maxBusy     = 64
)

var (
	quiet = sync.Pool{New: func() any { b := make([]byte, quietBuffer); return &b }}
	busy  = sync.Pool{New: func() any { b := make([]byte, busyBuffer); return &b }}
)

// buffer lends a buffer, a large one if there is one.
func (g *Gate) buffer(large bool) *[]byte {
	for n := g.lent.Load(); large && n < maxBusy; n = g.lent.Load() {
		if g.lent.CompareAndSwap(n, n+1) {
			return busy.Get().(*[]byte)
		}
	}
	return quiet.Get().(*[]byte)
}

// putBack takes a buffer back.
func (g *Gate) putBack(b *[]byte) {
	if len(*b) == busyBuffer {
		busy.Put(b)
		g.lent.Add(-1)
		return
	}
	quiet.Put(b)
}

// copyIdle copies until the end, an error, or idleTime without a byte.
func (g *Gate) copyIdle(to, from net.Conn) error {
	buf := g.buffer(false)
	defer func() { g.putBack(buf) }()
	for {
		_ = from.SetReadDeadline(time.Now().Add(idleTime))
		n, err := from.Read(*buf)
		if n > 0 {
			_ = to.SetWriteDeadline(time.Now().Add(idleTime))
			if _, err := to.Write((*buf)[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if large := n >= quietBuffer; large != (len(*buf) == busyBuffer) {
			g.putBack(buf)
			buf = g.buffer(large)
		}
	}
}

// proxyBuffers lends a gate's buffers to httputil.ReverseProxy.
type proxyBuffers struct{ gate *Gate }

func (p proxyBuffers) Get() []byte  { return *p.gate.buffer(true) }
func (p proxyBuffers) Put(b []byte) { p.gate.putBack(&b) }

package egress

import (
	"io"
	"net"
	"sync"
	"time"
)

// A quiet connection has a small buffer. A busy one has a large buffer, because each write is
// a frame of the guest's connection. A container may have only maxBusy large buffers: a
// connection whose host accepts nothing holds its buffer.
const (
	quietBuffer = 8 << 10
	busyBuffer  = 256 << 10
	maxBusy     = 32
)

var (
	quiet = sync.Pool{New: func() any { b := make([]byte, quietBuffer); return &b }}
	busy  = sync.Pool{New: func() any { b := make([]byte, busyBuffer); return &b }}
)

// buffer borrows a buffer: a large one if requested and available, else a small one.
func (g *Gate) buffer(large bool) *[]byte {
	for n := g.lent.Load(); large && n < maxBusy; n = g.lent.Load() {
		if g.lent.CompareAndSwap(n, n+1) {
			return busy.Get().(*[]byte)
		}
	}
	return quiet.Get().(*[]byte)
}

// putBack returns a borrowed buffer.
func (g *Gate) putBack(b *[]byte) {
	if len(*b) == busyBuffer {
		busy.Put(b)
		g.lent.Add(-1)
		return
	}
	quiet.Put(b)
}

// copyIdle copies until EOF, an error, or idleTime without a byte.
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

// proxyBuffers adapts a gate's buffers to httputil.BufferPool. They are a little smaller, so
// that a chunk with its head and end fits into the buffer of a gatherer.
type proxyBuffers struct{ gate *Gate }

const chunkFrame = 64

func (p proxyBuffers) Get() []byte {
	b := *p.gate.buffer(true)
	return b[:len(b)-chunkFrame]
}

func (p proxyBuffers) Put(b []byte) {
	b = b[:len(b)+chunkFrame]
	p.gate.putBack(&b)
}

package egress

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Hosts of tests listen in memory, because a synctest bubble cannot wait for the kernel.
var (
	memoryHosts sync.Map // *memoryListener by address
	memoryCount atomic.Int64
)

// inMemory begins the address of a host in memory.
const inMemory = "memory:"

// A memoryListener accepts connections in memory.
type memoryListener struct {
	addr  memoryAddr
	conns chan net.Conn
	done  chan struct{}
	close func()
}

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

func listenInMemory(t testing.TB) *memoryListener {
	l := &memoryListener{addr: memoryAddr(fmt.Sprint(inMemory, memoryCount.Add(1))),
		conns: make(chan net.Conn), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { memoryHosts.Delete(string(l.addr)); close(l.done) })
	memoryHosts.Store(string(l.addr), l)
	t.Cleanup(l.close)
	return l
}

func (l *memoryListener) Addr() net.Addr { return l.addr }
func (l *memoryListener) Close() error   { l.close(); return nil }

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// dialInMemory connects to a listener in memory.
func dialInMemory(addr string) (net.Conn, error) {
	found, ok := memoryHosts.Load(addr)
	if !ok {
		return nil, net.ErrClosed
	}
	l := found.(*memoryListener)
	hereIn, thereOut := net.Pipe()
	thereIn, hereOut := net.Pipe()
	select {
	case l.conns <- &memoryConn{Conn: thereIn, out: thereOut, addr: l.addr}:
		return &memoryConn{Conn: hereIn, out: hereOut, addr: l.addr}, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// A memoryConn has a pipe for each direction, so that each can end by itself.
type memoryConn struct {
	net.Conn // is read
	out      net.Conn
	addr     memoryAddr
}

func (c *memoryConn) Write(p []byte) (int, error)        { return c.out.Write(p) }
func (c *memoryConn) CloseWrite() error                  { return c.out.Close() }
func (c *memoryConn) Close() error                       { c.out.Close(); return c.Conn.Close() }
func (c *memoryConn) LocalAddr() net.Addr                { return c.addr }
func (c *memoryConn) RemoteAddr() net.Addr               { return c.addr }
func (c *memoryConn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }

func (c *memoryConn) SetDeadline(t time.Time) error {
	_ = c.out.SetWriteDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

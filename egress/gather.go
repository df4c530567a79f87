package egress

import (
	"net"
	"net/http"
	"sync"
)

// A gatherer is a connection that can join writes. Each write to a sandbox is a frame of its
// connection and wakes several threads there, and an http.Server makes three for each piece of
// an answer: the head and start of a chunk, its rest, and its end.
type gatherer struct {
	net.Conn
	gate *Gate

	mu  sync.Mutex
	buf *[]byte // nil unless writes are being joined
	n   int
	err error
}

// Write implements net.Conn.
func (g *gatherer) Write(p []byte) (n int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.buf == nil {
		return g.Conn.Write(p)
	}
	for n < len(p) && g.err == nil {
		m := copy((*g.buf)[g.n:], p[n:])
		n, g.n = n+m, g.n+m
		if g.n == len(*g.buf) {
			g.flush()
		}
	}
	return n, g.err
}

// flush sends what was gathered. The caller holds g.mu.
func (g *gatherer) flush() {
	if g.n > 0 && g.err == nil {
		_, g.err = g.Conn.Write((*g.buf)[:g.n])
	}
	g.n = 0
}

// gather starts to join writes.
func (g *gatherer) gather() {
	buf := g.gate.buffer(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.buf = buf
}

// send sends what was written since gather.
func (g *gatherer) send() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flush()
	g.gate.putBack(g.buf)
	g.buf = nil
	return g.err
}

// CloseWrite signals the end of data.
func (g *gatherer) CloseWrite() error { return closeWrite(g.Conn) }

// A pieceWriter writes the body of a response piece by piece. Each is sent immediately, in as few
// writes as possible.
type pieceWriter struct {
	http.ResponseWriter
	conn *gatherer
}

// Unwrap is called by http.ResponseController.
func (w pieceWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w pieceWriter) Write(p []byte) (int, error) {
	w.conn.gather()
	n, err := w.ResponseWriter.Write(p)
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	if sent := w.conn.send(); err == nil {
		err = sent
	}
	return n, err
}

package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth/api/exchange"
)

// A writer is the answer of a request that the SDK serves. It keeps a stream alive with comments, and gives the SDK's
// plain errors the form of the protocol.
type writer struct {
	x        *exchange.Exchange
	out      *exchange.PatientWriter
	onHeader func(http.Header) // called before the header is sent; may be nil
	every    time.Duration

	mu      sync.Mutex
	status  int
	plain   bool // the body is the text of an error
	silence *time.Timer
}

func newWriter(x *exchange.Exchange, every time.Duration) *writer {
	return &writer{x: x, out: x.Patient(), every: every}
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.x.Header() }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

func (w *writer) writeHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	h := w.x.Header()
	if w.onHeader != nil {
		w.onHeader(h)
	}
	if status >= http.StatusBadRequest && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		w.plain = true
		h.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		h.Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
		w.silence = time.AfterFunc(w.every, w.comment)
	}
	w.out.Renew()
	w.x.WriteHeader(status)
}

// Write implements http.ResponseWriter. The SDK writes whole events.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	if w.silence != nil {
		w.silence.Reset(w.every)
	}
	if !w.plain {
		return w.out.Write(p)
	}
	text, err := json.Marshal(newFailure(w.status, strings.TrimSpace(string(p))))
	if err != nil {
		return 0, fmt.Errorf("encode error: %w", err)
	}
	if _, err := w.out.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// FlushError is called by http.ResponseController.
func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	return w.flush()
}

func (w *writer) flush() error {
	if err := http.NewResponseController(w.x).Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// comment sends a comment, so that proxies and clients do not take the stream for dead.
func (w *writer) comment() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silence == nil {
		return
	}
	if _, err := w.out.Write([]byte(": keep-alive\n\n")); err != nil || w.flush() != nil {
		return // the request ends when the client is gone
	}
	w.silence.Reset(w.every)
}

// close must be called before the handler returns.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silence != nil {
		w.silence.Stop()
		w.silence = nil
	}
	w.out.Renew() // the server sends the last bytes after the handler returns
}

package exchange

import (
	"mime"
	"net/http"
	"time"
)

// The kinds of answers that last, for an Observer.
const (
	StreamEvents = "events"  // server-sent
	StreamSocket = "upgrade" // WebSockets, and other protocols that take a connection over
)

// An Observer counts what the API answers, for metrics. Its methods must not block.
type Observer interface {
	// Opened counts an answer that lasts. closed must be called at its end.
	Opened(kind string) (closed func())
	// Answered counts a request that has been answered: by which route, a method and
	// a pattern, and with which status.
	Answered(route string, status int, took time.Duration)
}

type noObserver struct{}

func (noObserver) Opened(string) func()                { return func() {} }
func (noObserver) Answered(string, int, time.Duration) {}

// opened calls the observer if an answer is one that lasts.
func (x *Exchange) opened(status int) {
	kind := ""
	if t, _, _ := mime.ParseMediaType(x.Header().Get("Content-Type")); status == http.StatusOK && t == "text/event-stream" {
		kind = StreamEvents
	}
	if status == http.StatusSwitchingProtocols {
		kind = StreamSocket
	}
	if kind != "" {
		x.closed = x.server.Observer.Opened(kind)
	}
}

// observe calls the observer for a request that has been answered.
func (x *Exchange) observe(r *http.Request) {
	if x.closed != nil {
		x.closed()
	}
	route := r.Pattern
	if route == "" || route == "/" {
		route = "none"
	}
	x.server.Observer.Answered(route, x.status, time.Since(x.start))
}

package exchange

import (
	"mime"
	"net/http"
	"time"
)

// The kinds of streams, for an Observer.
const (
	StreamEvents = "events"  // server-sent events
	StreamSocket = "upgrade" // WebSockets and other protocols on a hijacked connection
)

// An Observer collects metrics of the API. Its methods must not block.
type Observer interface {
	// Opened counts a stream that starts. The caller calls closed when the stream ends.
	Opened(kind string) (closed func())
	// Answered counts an answered request. route is the method and pattern of its route,
	// or "none".
	Answered(route string, status int, took time.Duration)
}

type noObserver struct{}

func (noObserver) Opened(string) func()                { return func() {} }
func (noObserver) Answered(string, int, time.Duration) {}

// opened reports the start of the answer to the observer, if it is a stream.
func (x *Exchange) opened(status int) {
	kind := ""
	if t, _, _ := mime.ParseMediaType(x.Header().Get("Content-Type")); status == http.StatusOK &&
		t == "text/event-stream" {
		kind = StreamEvents
	}
	if status == http.StatusSwitchingProtocols {
		kind = StreamSocket
	}
	if kind != "" {
		x.closed = x.server.Observer.Opened(kind)
	}
}

// observe reports the end of the answer to the observer.
func (x *Exchange) observe(r *http.Request) {
	if x.closed != nil {
		x.closed()
	}
	route := r.Pattern
	if !x.routed || route == fallbackPath {
		route = "none"
	}
	x.server.Observer.Answered(route, x.status, time.Since(x.start))
}

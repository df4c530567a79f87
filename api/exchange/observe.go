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

// An observation reports one request to the observer.
type observation struct {
	observer Observer
	routed   bool   // the request has passed Route
	closed   func() // reports the end of a stream; nil if the answer is none
}

// start reports the start of the answer, if it is a stream.
func (o *observation) start(status int, header http.Header) {
	kind := ""
	if t, _, _ := mime.ParseMediaType(header.Get("Content-Type")); status == http.StatusOK &&
		t == "text/event-stream" {
		kind = StreamEvents
	}
	if status == http.StatusSwitchingProtocols {
		kind = StreamSocket
	}
	if kind != "" {
		o.closed = o.observer.Opened(kind)
	}
}

// end reports the end of the answer.
func (o *observation) end(r *http.Request, status int, took time.Duration) {
	if o.closed != nil {
		o.closed()
	}
	route := r.Pattern
	if !o.routed || route == fallbackPath {
		route = "none"
	}
	o.observer.Answered(route, status, took)
}

package api

import (
	"mime"
	"net/http"
	"time"
)

// The kinds of answers that last, as an Observer is told them.
const (
	StreamEvents = "events"  // server-sent
	StreamSocket = "upgrade" // WebSockets, and what else a connection is given away to
)

// An Observer is told what the API answers, for figures. Its methods must not block.
type Observer interface {
	// Opened is told of an answer that lasts; closed must be called at its end.
	Opened(kind string) (closed func())
	// Answered is told of each request that has been answered: by which route, a
	// method and a pattern, and with which status.
	Answered(route string, status int, took time.Duration)
}

type noObserver struct{}

func (noObserver) Opened(string) func()                { return func() {} }
func (noObserver) Answered(string, int, time.Duration) {}

// stays tells the observer if an answer is one that lasts.
func (x *exchange) stays(status int) {
	kind := ""
	if t, _, _ := mime.ParseMediaType(x.Header().Get("Content-Type")); status == http.StatusOK && t == "text/event-stream" {
		kind = StreamEvents
	}
	if status == http.StatusSwitchingProtocols {
		kind = StreamSocket
	}
	if kind != "" {
		x.closed = x.observer.Opened(kind)
	}
}

// observe tells the observer that the request has been answered.
func (x *exchange) observe(r *http.Request) {
	if x.closed != nil {
		x.closed()
	}
	route := r.Pattern
	if route == "" || route == "/" {
		route = "none"
	}
	x.observer.Answered(route, x.status, time.Since(x.start))
}

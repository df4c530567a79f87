// Package socket is the WebSocket door: OpenAI's and Open Responses' WebSocket mode. Each
// text message of the client is an event that asks for a response (frame.go), and is
// answered with the events of the stream that a POST would have had, one a message (turn.go).
package socket

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/journal"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/engine"
)

// Options are what the door needs.
type Options struct {
	Exchange *exchange.Server // of the API: identity, limits, memory, log
	Journal  *journal.Journal // of the engine
	Rules    *request.Rules   // for the requests in frames

	// Create starts the response that a complete request asks for.
	Create func(context.Context, berth.Caller, *berth.ResponseRequest, ...engine.Option) (*berth.Response, error)

	// Life is how long a connection takes new events. Default: 60 minutes.
	Life time.Duration
}

// A Door serves WebSockets.
type Door struct{ Options }

// New returns a door.
func New(opts Options) *Door {
	if opts.Life == 0 {
		opts.Life = time.Hour
	}
	return &Door{opts}
}

// Connect serves GET /v1/responses as a WebSocket.
func (d *Door) Connect(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if !upgrades(r) {
		x.Header().Set("Connection", "Upgrade")
		x.Header().Set("Upgrade", "websocket")
		x.Header().Set("Sec-WebSocket-Version", "13")
		x.Error(http.StatusUpgradeRequired, exchange.Error{Type: exchange.TypeInvalid, Code: exchange.OrNull("upgrade_required"),
			Message: "Invalid method for URL (" + r.Method + " " + r.URL.Path + "): use POST, or connect with a WebSocket."})
		return nil
	}
	// Without keys, Identify has refused the origins of pages. With keys, a request must
	// bear one, which a page cannot add to its WebSocket.
	conn, err := websocket.Accept(x, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	conn.SetReadLimit(d.Exchange.Limits.MaxBody)
	k := &socket{
		door: d, request: r, project: c.Project, conn: conn, id: x.RequestID(),
		memory: engine.NewMemory(d.Exchange.Limits.MaxBody), lanes: map[string]*lane{},
		idle: make(chan struct{}), unwelcome: make(chan struct{}, 1),
	}
	k.ctx, k.leave = context.WithCancelCause(r.Context())
	k.serve()
	return nil
}

// upgrades reports whether a request opens a WebSocket as RFC 6455 says (4.2.1).
func upgrades(r *http.Request) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && r.ProtoMajor == 1 &&
		exchange.HeaderHas(r.Header, "Connection", "upgrade") && exchange.HeaderHas(r.Header, "Upgrade", "websocket") &&
		r.Header.Get("Sec-WebSocket-Version") == "13" &&
		err == nil && len(key) == 16 && len(r.Header.Values("Sec-WebSocket-Key")) == 1
}

// The bounds of one connection, as OpenAI's guide states the first two.
const (
	maxRunning = 16 // responses at once, one in each lane
	maxLanes   = 32 // that have a name
	maxWaiting = 64 // frames; their bytes are bounded by MaxBody
)

var errClientLeft = errors.New("the client left")

// A socket is one connection. Responses in one lane follow each other; lanes do
// not wait for each other.
type socket struct {
	door    *Door
	request *http.Request // that opened it; it identifies the caller
	project berth.ProjectID
	conn    *websocket.Conn
	id      string // of that request
	memory  *engine.Memory
	ctx     context.Context // of all responses; ends when the client or the server goes
	leave   context.CancelCauseFunc

	writing sync.Mutex   // one message at a time
	moved   atomic.Int64 // when bytes last went either way, in Unix nanoseconds

	unwelcome chan struct{} // has a value when the caller's key is not valid any more
	idle      chan struct{} // closed when retired and nothing runs

	mu      sync.Mutex
	lanes   map[string]*lane
	waiting []frame // in the order of their arrival
	running int
	retired bool // no more frames are started
}

// A lane is a queue of responses: each waits for the one before.
type lane struct {
	busy bool
	// latest is the last response that completed here, if it is only in memory. While the
	// lane is busy, only its turn may use it.
	latest berth.ResponseID
}

// serve answers until the connection ends.
func (k *socket) serve() {
	left, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		k.watch(left)
	}()
	defer func() { // after a panic too
		close(left)
		<-over
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, f := range k.waiting { // that are not answered any more
			f.held.Close()
		}
		k.waiting = nil
	}()
	k.read()
}

// watch ends the connection when its client has left, the server stops, the caller's key is
// not valid any more, or the connection has reached its age. Then no more frames are
// started. Unless the client has left, running responses are sent to their end.
func (k *socket) watch(left <-chan struct{}) {
	defer k.leave(nil)
	stopPings := k.ping()
	defer stopPings()
	age := time.NewTimer(k.door.Life)
	defer age.Stop()

	code, reason, expired := websocket.StatusGoingAway, "the server is stopping", false
	select {
	case <-left:
	case <-k.request.Context().Done():
	case <-k.unwelcome:
		code, reason = websocket.StatusPolicyViolation, "the API key is not valid any more"
	case <-age.C:
		reason, expired = "the connection has had its time", true
	}
	k.retire()
	select {
	case <-k.idle:
	case <-left:
		k.leave(errClientLeft)
		<-k.idle
	}
	if expired {
		k.sendError("", rule.Errorf("websocket_connection_limit_reached", "",
			"Responses websocket connection limit reached (%d minutes). Create a new websocket connection to continue.", int(k.door.Life.Minutes())), k.id)
	}
	_ = k.conn.Close(code, reason)
}

// retire starts no more frames; the running ones go on.
func (k *socket) retire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.retired = true
	if k.running == 0 {
		close(k.idle)
	}
}

// take queues a frame. An error is for the client, and the frame is dropped.
func (k *socket) take(f frame) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lanes[f.lane] == nil {
		named := len(k.lanes)
		if k.lanes[""] != nil {
			named--
		}
		if f.lane != "" && named == maxLanes {
			return rule.Errorf("websocket_stream_limit_reached", "stream_id",
				"This WebSocket connection has reached its maximum number of distinct stream IDs (%d). Reuse an existing stream_id or open a new WebSocket connection.", maxLanes)
		}
		k.lanes[f.lane] = &lane{}
	}
	size := f.size
	for _, other := range k.waiting {
		size += other.size
	}
	if len(k.waiting) == maxWaiting || size > k.door.Exchange.Limits.MaxBody {
		return berth.Errorf(berth.CodeRateLimited, "Too many events wait for their turn on this connection. Wait for a response to end.")
	}
	k.waiting = append(k.waiting, f)
	k.begin()
	return nil
}

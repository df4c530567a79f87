// Package socket serves the WebSocket mode of OpenAI and Open Responses. Each text message
// of the client is an event that requests a response (frame.go). The server answers with the
// events that a stream of POST /v1/responses has, one per message (turn.go).
package socket

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
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
	Exchange *exchange.Server // the API's identity, limits, memory and log
	Journal  *journal.Journal // the engine's journal
	Rules    *request.Rules   // for the requests in frames

	// Create creates the response of a complete request.
	Create func(context.Context, berth.Caller, *berth.ResponseRequest, ...engine.Option) (*berth.Response, error)

	// Life is how long a connection accepts new events. The default is 60 minutes.
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
		x.Error(http.StatusUpgradeRequired, exchange.Error{Type: exchange.TypeInvalid,
			Code: exchange.OrNull("upgrade_required"),
			Message: "Invalid method for URL (" + r.Method + " " + r.URL.Path +
				"). Use POST, or connect with a WebSocket."})
		return nil
	}
	// The origin need not be checked here. Without keys, Identify refuses other origins. With
	// keys, the request must have a key in a header, which a page cannot add to a WebSocket.
	conn, err := websocket.Accept(x, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	conn.SetReadLimit(d.Exchange.Limits.MaxBody)
	k := &socket{
		door: d, request: r, project: c.Project, conn: conn, id: x.RequestID(),
		memory: engine.NewMemory(d.Exchange.Limits.MaxBody), lanes: map[string]*lane{}, fars: map[string]*remote{},
		idle: make(chan struct{}), unwelcome: make(chan struct{}, 1),
	}
	k.ctx, k.leave = context.WithCancelCause(r.Context())
	k.serve()
	return nil
}

// upgrades reports whether a request opens a WebSocket according to RFC 6455, 4.2.1.
func upgrades(r *http.Request) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && r.ProtoMajor == 1 &&
		exchange.HeaderHas(r.Header, "Connection", "upgrade") && exchange.HeaderHas(r.Header, "Upgrade", "websocket") &&
		r.Header.Get("Sec-WebSocket-Version") == "13" &&
		err == nil && len(key) == 16 && len(r.Header.Values("Sec-WebSocket-Key")) == 1
}

// The limits of one connection. The first two are those of OpenAI's guide.
const (
	maxRunning = 16 // concurrent responses, one per lane
	maxLanes   = 32 // lanes with a name
	maxWaiting = 64 // frames; MaxBody limits their total size
)

var errClientLeft = errors.New("the client disconnected")

// A socket is one connection. The responses of one lane run one after another; lanes run
// concurrently.
type socket struct {
	door    *Door
	request *http.Request // the request that opened it; identifies the caller
	project berth.ProjectID
	conn    *websocket.Conn
	id      string // of the request
	memory  *engine.Memory
	ctx     context.Context // of all responses; ends with the client or the server
	leave   context.CancelCauseFunc

	writing sync.Mutex   // held while a message is written
	moved   atomic.Int64 // time of the last transfer in either direction, in Unix nanoseconds

	unwelcome chan struct{} // gets a value when the caller's key has become invalid
	idle      chan struct{} // closed when retired is true and running is 0

	mu      sync.Mutex         // guards what follows
	fars    map[string]*remote // by server
	lanes   map[string]*lane
	waiting []frame // in the order of their arrival
	running int
	retired bool // no more frames are started
}

// A lane is a queue of responses: each waits for the one before.
type lane struct {
	busy bool
	// latest is the last response of the lane that completed, if it is only in memory.
	// While the lane is busy, only its turn may change the field.
	latest berth.ResponseID
	server string // the one that has latest, if it is another one
}

// serve serves the connection until it ends.
func (k *socket) serve() {
	left, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		k.watch(left)
	}()
	defer func() { // after a panic too
		close(left)
		<-over
		k.closeFars()
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, f := range k.waiting { // they get no answer
			f.held.Close()
		}
		k.waiting = nil
	}()
	k.read()
}

// watch ends the connection when the client disconnects, the server stops, the caller's key
// becomes invalid, or the connection reaches its maximum age. From then on, it starts no
// frames. Unless the client has disconnected, it waits for the responses in progress.
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
		code, reason = websocket.StatusPolicyViolation, "the API key is no longer valid"
	case <-age.C:
		reason, expired = "the connection has reached its maximum age", true
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
			"Responses websocket connection limit reached (%d minutes). Create a new websocket connection to continue.",
			int(k.door.Life.Minutes())), k.id)
	}
	_ = k.conn.Close(code, reason)
}

// retire prevents the start of more frames. Those in progress continue.
func (k *socket) retire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.retired = true
	if k.running == 0 {
		close(k.idle)
	}
}

// enqueue queues a frame. If it returns an error, which is for the client, the frame is not
// queued.
func (k *socket) enqueue(f frame) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lanes[f.lane] == nil {
		named := len(k.lanes)
		if k.lanes[""] != nil {
			named--
		}
		if f.lane != "" && named == maxLanes {
			return rule.Errorf("websocket_stream_limit_reached", "stream_id",
				"This WebSocket connection has reached its maximum number of distinct stream IDs (%d). Reuse an existing stream_id or open a new WebSocket connection.",
				maxLanes)
		}
		k.lanes[f.lane] = &lane{}
	}
	size := f.size
	for _, other := range k.waiting {
		size += other.size
	}
	if len(k.waiting) == maxWaiting || size > k.door.Exchange.Limits.MaxBody {
		return berth.Errorf(berth.CodeRateLimited,
			"Too many events are queued on this connection. Wait for a response to end before you send more.")
	}
	k.waiting = append(k.waiting, f)
	k.start()
	return nil
}

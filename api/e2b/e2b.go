// Package e2b serves E2B's API, for E2B's own clients: a sandbox is a container.
//
// Clients use two sets of requests. Those of the control plane create, list and end sandboxes with
// an API key; they are routes of the API. Those of the data plane use one sandbox, which a header or
// the signature of a URL names, with the sandbox's own access token; Data serves them.
package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/store"
)

// envdVersion is the version of envd whose features the guest has. Clients check it.
const envdVersion = "0.5.7"

// Options are what the door needs.
type Options struct {
	Containers *container.Service
	Objects    store.Objects
	Secret     [32]byte                                     // from which access tokens are made
	MaxIdle    time.Duration                                // the longest that a container may be idle
	CPU        float64                                      // cores of a container
	Disk       int64                                        // bytes that a container may write
	Check      func(context.Context, berth.ProjectID) error // refuses archived projects
	Log        *slog.Logger
	Now        func() time.Time
}

// A Door serves sandboxes. It is safe for concurrent use.
type Door struct {
	Options

	mu      sync.Mutex
	live    map[berth.ContainerID]live
	loaded  time.Time     // when live was read from the store
	changed chan struct{} // receives a value when an earlier deadline was set
}

// live is what the data plane and the deadlines need of a sandbox.
type live struct {
	project  berth.ProjectID
	deadline int64     // Unix seconds; never if it is paused
	at       time.Time // when it was set
}

// New returns a door. Run must run for sandboxes to end at their deadlines.
func New(opts Options) *Door {
	return &Door{Options: opts, live: map[berth.ContainerID]live{}, changed: make(chan struct{}, 1)}
}

// Routes returns the routes of the control plane.
func (d *Door) Routes() []exchange.Route {
	const noBody = exchange.StoresNothing | exchange.StoresLittle
	routes := []exchange.Route{
		exchange.On("POST /sandboxes", d.createOld),
		exchange.On("POST /v2/sandboxes", d.create),
		exchange.On("GET /sandboxes", d.list, exchange.ReadsQuery),
		exchange.On("GET /v2/sandboxes", d.list, exchange.ReadsQuery),
		exchange.On("GET /sandboxes/{sandbox}", d.get),
		exchange.On("DELETE /sandboxes/{sandbox}", d.kill),
		exchange.On("GET /sandboxes/{sandbox}/metrics", d.metrics, exchange.ReadsQuery),
		exchange.On("POST /sandboxes/{sandbox}/timeout", d.setTimeout, noBody),
		exchange.On("POST /sandboxes/{sandbox}/refreshes", d.refresh, noBody),
		exchange.On("POST /sandboxes/{sandbox}/pause", d.pause, noBody),
		exchange.On("POST /sandboxes/{sandbox}/resume", d.connect, noBody),
		exchange.On("POST /sandboxes/{sandbox}/connect", d.connect, noBody),
		exchange.On("POST /v2/sandboxes/{sandbox}/connect", d.connect, noBody),
	}
	for i := range routes {
		routes[i].WriteError = writeError
		routes[i].Traits |= exchange.KeyInHeader
	}
	return routes
}

// writeError answers with an error in E2B's form.
func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	_ = x.JSON(status, failure{Code: status, Message: e.Message})
}

// A failure is an error in E2B's form.
type failure struct {
	Code    int    `json:"code"` // the HTTP status
	Message string `json:"message"`
}

// idOf returns the id of the container of a sandbox. Ids of sandboxes are parts of host names, so
// they have no prefix with an underscore.
func idOf(sandbox string) berth.ContainerID {
	return berth.ContainerID(berth.PrefixContainer + sandbox)
}

// nameOf returns the id of the sandbox of a container.
func nameOf(id berth.ContainerID) string {
	return strings.TrimPrefix(string(id), berth.PrefixContainer)
}

// token returns the access token of a sandbox.
func (d *Door) token(id berth.ContainerID) string {
	mac := hmac.New(sha256.New, d.Secret[:])
	mac.Write([]byte("e2b access token\x00" + id))
	return hex.EncodeToString(mac.Sum(nil))
}

// sandboxOf returns the container id of a request's path.
func sandboxOf(r *http.Request) berth.ContainerID { return idOf(r.PathValue("sandbox")) }

func notFound(id berth.ContainerID) error {
	return berth.Errorf(berth.CodeNotFound, "Sandbox '%s' not found.", nameOf(id))
}

// find returns the project of a sandbox. A sandbox that another server created is known after the
// next reload. An unknown id must not cause a read of the store: such requests need no key.
func (d *Door) find(ctx context.Context, id berth.ContainerID) (berth.ProjectID, bool, error) {
	d.mu.Lock()
	s, ok := d.live[id]
	loaded := !d.loaded.IsZero()
	d.mu.Unlock()
	if ok || loaded {
		return s.project, ok, nil
	}
	if err := d.load(ctx); err != nil {
		return "", false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok = d.live[id]
	return s.project, ok, nil
}

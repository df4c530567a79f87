// Package mcp serves the Model Context Protocol, for clients that use containers as their computer: shell commands,
// code, files and ports are tools.
//
// The protocol's own part is the official SDK's. This package gives each of its requests a caller, a session and a
// container. Clients of the protocol up to 2025-11-25 have sessions; those of 2026-07-28 have none, and name their
// container or share that of their key.
package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/command"
	"github.com/berth-run/berth/container/session"
)

// Path is the path of the door.
const Path = "/mcp"

// Headers of the protocol, and of this door.
const (
	sessionHeader   = "Mcp-Session-Id"
	versionHeader   = "Mcp-Protocol-Version"
	containerHeader = "Berth-Container" // the name or the id of the container, as in the query
)

// sessionless is the first version of the protocol without sessions.
const sessionless = "2026-07-28"

// A PortLink is a URL with which any client reaches a port of a container until it expires.
type PortLink struct {
	URL       string
	HostURL   string // under the port's own host, if the server has a domain
	ExpiresAt int64
}

// Options are what the door needs.
type Options struct {
	Containers *container.Service
	Sessions   *session.Service
	Commands   *command.Service
	Placement  cluster.Placement // default: cluster.Solo
	Origins    []string          // of web pages that may use the API, or "*"
	Version    string            // of this server
	Log        *slog.Logger

	// Remove deletes a container, also one of another server. Default: Containers.Delete.
	Remove func(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error

	// Link makes a link to a port for the caller of a request.
	Link func(r *http.Request, c berth.Caller, id berth.ContainerID, port int, life time.Duration) (PortLink, error)

	Approvals *approvals.Service // of calls of clients that cannot ask their user
	Patience  time.Duration      // for which a call waits for the answer of a person; default 50 s

	MaxBody   int64         // bytes of a request; default 16 MiB
	KeepAlive time.Duration // after which a silent stream gets a comment; default 15 s
	Calls     int           // of tools of a project that run at a time; default 128
}

// A Door serves the protocol. It is safe for concurrent use.
type Door struct {
	Options

	server    *sdk.Server
	stateful  http.Handler // for versions with sessions
	stateless http.Handler // for versions without
	events    *events
	watches   *watches

	mu         sync.Mutex
	transports map[*session.Session]string // the SDK's ids of sessions
	sessions   map[string]*session.Session // by the SDK's id
	calls      map[berth.ProjectID]int     // that run
}

// New returns a door.
func New(opts Options) *Door {
	if opts.Placement == nil {
		opts.Placement = cluster.Solo{}
	}
	if opts.Remove == nil {
		opts.Remove = opts.Containers.Delete
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 16 << 20
	}
	if opts.KeepAlive == 0 {
		opts.KeepAlive = 15 * time.Second
	}
	if opts.Patience == 0 {
		opts.Patience = 50 * time.Second
	}
	if opts.Calls == 0 {
		opts.Calls = 128
	}
	d := &Door{Options: opts, transports: map[*session.Session]string{}, sessions: map[string]*session.Session{},
		calls: map[berth.ProjectID]int{}}
	d.events = &events{ended: d.closed, sessions: map[string]*history{}}
	d.server = sdk.NewServer(&sdk.Implementation{Name: "berth", Title: "Berth", Version: opts.Version},
		&sdk.ServerOptions{Instructions: instructions, SubscribeHandler: d.subscribe,
			UnsubscribeHandler: d.unsubscribe, PageSize: 100,
			Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{},
				Resources: &sdk.ResourceCapabilities{Subscribe: true}}})
	d.watches = &watches{door: d, running: map[watched]*watch{}, listeners: map[sdk.Session]*visit{}}
	d.addTools()
	d.addResources()
	get := func(*http.Request) *sdk.Server { return d.server }
	// Exchange has checked the host of a server without keys.
	known := auth.RequireBearerToken(tokenOf, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	d.stateful = known(sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{EventStore: d.events,
		MaxRequestBodyBytes: -1, DisableLocalhostProtection: true}))
	d.stateless = known(sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{Stateless: true,
		MaxRequestBodyBytes: -1, DisableLocalhostProtection: true, PropagateRequestCancellation: true}))
	return d
}

// instructions tell a model what the tools have in common.
const instructions = `These tools are a Linux computer of your own, in a container that is isolated from the user's machine.
Relative paths are below /mnt/data. Files stay as long as the container. The network may be closed: if a download fails, say so and use what is installed.
A command that takes long returns its id: use wait for the rest of its output.`

// Routes returns the routes of the door.
func (d *Door) Routes() []exchange.Route {
	const noBody = exchange.StoresNothing | exchange.StoresLittle
	routes := []exchange.Route{
		exchange.On("POST "+Path, d.post, exchange.ReadsQuery, noBody),
		exchange.On("GET "+Path, d.get, exchange.ReadsQuery),
		exchange.On("DELETE "+Path, d.end, exchange.ReadsQuery),
	}
	for i := range routes {
		routes[i].WriteError = writeError
	}
	return routes
}

// Codes of errors of JSON-RPC.
const (
	codeInvalidRequest = -32600
	codeInternal       = -32603
)

// A failure is an answer with an error of JSON-RPC that belongs to no request.
type failure struct {
	Version string `json:"jsonrpc"`
	ID      any    `json:"id"` // null
	Error   struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func newFailure(status int, message string) failure {
	f := failure{Version: "2.0"}
	f.Error.Code, f.Error.Message = codeInvalidRequest, message
	if status >= http.StatusInternalServerError {
		f.Error.Code = codeInternal
	}
	return f
}

// writeError answers with an error in the form of the protocol.
func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	if status == http.StatusUnauthorized {
		x.Header().Set("WWW-Authenticate", "Bearer")
	}
	_ = x.JSON(status, newFailure(status, e.Message))
}

// checkOrigin refuses requests of web pages of other origins than this server's and those that the operator allows: a
// page must not use the session of a program on the user's machine.
func (d *Door) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(d.Origins, "*") || slices.Contains(d.Origins, origin) ||
		strings.EqualFold(origin, "http://"+r.Host) || strings.EqualFold(origin, "https://"+r.Host) {
		return nil
	}
	return &berth.Error{Code: berth.CodeForbidden, Wire: "origin_not_allowed",
		Message: "Requests of this web page are not allowed. The operator allows origins with cors.origins."}
}

// visitKey is the key of a request's visit in contexts, and in the info of its token.
type visitKey struct{}

const visitExtra = "visit"

// tokenOf hands the visit of a request over to the SDK, which passes it to the handlers of tools.
func tokenOf(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{Extra: map[string]any{visitExtra: v}}, nil
}

// visitOf returns the visit of a request of the SDK, or nil.
func visitOf(extra *sdk.RequestExtra) *visit {
	if extra == nil || extra.TokenInfo == nil {
		return nil
	}
	v, _ := extra.TokenInfo.Extra[visitExtra].(*visit)
	return v
}

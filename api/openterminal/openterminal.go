// Package openterminal serves the API of Open Terminal, which Open WebUI uses to give each chat a computer: commands,
// files, searches, ports and terminals. Each user id of a client has a container of its own.
//
// The routes and the forms of the answers are those of Open Terminal 0.14. Searches and changes of files are made by a
// program that runs in the container (helper.py).
package openterminal

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/process"
	"github.com/berth-run/berth/container/session"
)

// Path is the path of the door: the URL that a client is configured with ends with it.
const Path = "/open-terminal"

// Headers that name the user, the chat, and the part of the user's work that has a container of its own.
const (
	userHeader    = "X-User-Id"
	sessionHeader = "X-Session-Id"
	contextHeader = "X-Terminal-Context-Id"
)

// A ContainerSpec describes the containers of users. Zero values are the server's defaults.
type ContainerSpec struct {
	Template    string
	MemoryLimit string
	IdleMinutes int // without a request, after which a container becomes a snapshot
	Network     *berth.NetworkPolicy
}

// Options are what the door needs.
type Options struct {
	Exchange   *exchange.Server
	Containers *container.Service
	Sessions   *session.Service
	Processes  *process.Service
	Placement  cluster.Placement // default: cluster.Solo
	Container  ContainerSpec
	Prompt     string // told to models about the computer; default: a general description
	Log        *slog.Logger
	MaxBody    int64 // bytes of a request in JSON; default 16 MiB
}

// A Door serves the API. It is safe for concurrent use.
type Door struct {
	Options
	proxy *preview.Proxy
}

// New returns a door.
func New(opts Options) *Door {
	if opts.Placement == nil {
		opts.Placement = cluster.Solo{}
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 16 << 20
	}
	if opts.Prompt == "" {
		opts.Prompt = defaultPrompt
	}
	return &Door{Options: opts, proxy: preview.New(opts.Log)}
}

// defaultPrompt tells a model about its computer.
const defaultPrompt = `You have a Linux computer, in a container that is isolated from the user's own machine. Your files are in /mnt/data and stay between chats. Use the tools to run commands and to read, write and search files. Look at the state before you change it, and at the output of a command before you rely on it; no output mostly means success. The network may be closed: if a download fails, say so and use what is installed.`

// Routes returns the routes of the door.
func (d *Door) Routes() []exchange.Route {
	const reads, changes = exchange.ReadsQuery, exchange.ReadsQuery | exchange.StoresNothing | exchange.StoresLittle
	// Files in a container count towards its disk, not towards the storage of the project.
	const stores = exchange.ReadsQuery | exchange.StoresNothing
	route := func(pattern string, serve func(*visit) error, traits exchange.Traits) exchange.Route {
		method, path, _ := strings.Cut(pattern, " ")
		return exchange.On(strings.TrimSpace(method+" "+Path+path), d.visitor(serve, creates), traits)
	}
	// known is route for requests about what a user has: they make no container.
	known := func(pattern string, serve func(*visit) error, traits exchange.Traits) exchange.Route {
		rt := route(pattern, serve, traits)
		rt.Handle = d.visitor(serve, 0)
		return rt
	}
	public := func(path string, v any) exchange.Route {
		return exchange.Public("GET "+Path+path, func(w http.ResponseWriter, _ *http.Request) {
			_ = exchange.WriteJSON(w, http.StatusOK, v)
		})
	}
	routes := []exchange.Route{
		d.socketRoute(),
		public("/health", map[string]string{"status": "ok"}),
		public("/api/config", map[string]any{"features": map[string]bool{"terminal": true, "notebooks": false,
			"system": true}}),
		public("/openapi.json", document),
		exchange.On("GET "+Path+"/system", d.system, reads),

		known("GET /execute", (*visit).listCommands, reads),
		route("POST /execute", (*visit).execute, changes),
		known("GET /execute/{process}/status", (*visit).status, reads),
		known("POST /execute/{process}/input", (*visit).input, changes),
		known("DELETE /execute/{process}", (*visit).kill, reads),

		route("GET /files/cwd", inFiles(files.directory), reads),
		route("POST /files/cwd", inFiles(files.setDirectory), changes),
		route("GET /files/list", inFiles(files.list), reads),
		route("GET /files/read", inFiles(files.read), reads),
		route("GET /files/display", inFiles(files.display), reads),
		route("GET /files/view", inFiles(files.view), reads|exchange.NoCORS),
		route("GET /files/serve/{path...}", inFiles(files.serveFile), reads|exchange.NoCORS),
		route("POST /files/write", inFiles(files.write), stores),
		route("POST /files/replace", inFiles(files.replace), stores),
		route("POST /files/mkdir", inFiles(files.mkdir), stores),
		route("DELETE /files/delete", inFiles(files.delete), reads),
		route("POST /files/move", inFiles(files.move), changes),
		route("POST /files/compare", inFiles(files.compare), changes),
		route("GET /files/grep", inFiles(files.grep), reads),
		route("GET /files/glob", inFiles(files.glob), reads),
		route("GET /files/search", inFiles(files.search), reads),
		route("GET /files/matches", inFiles(files.matches), reads),
		route("POST /files/upload", inFiles(files.upload), stores),
		route("POST /files/archive", inFiles(files.archive), changes|exchange.NoCORS),
		route("GET /skills", inFiles(files.skills), reads),
		route("GET /skills/read", inFiles(files.readSkill), reads),

		route("GET /ports", (*visit).ports, reads),
		route(" /proxy/{port}/{path...}", (*visit).proxyPort, exchange.ThroughContainer|exchange.NoCORS),

		route("POST /api/terminals", (*visit).createTerminal, changes),
		known("GET /api/terminals", (*visit).listTerminals, reads),
		known("GET /api/terminals/{terminal}", (*visit).getTerminal, reads),
		known("DELETE /api/terminals/{terminal}", (*visit).deleteTerminal, reads),
		known("GET /api/terminals/user/output", (*visit).terminalOutput, reads),
		known("POST /api/terminals/user/input", (*visit).terminalInput, changes),
	}
	for i := range routes {
		routes[i].WriteError, routes[i].Fail = writeError, fail
	}
	return routes
}

// system serves GET /system: what a model is told about its computer.
func (d *Door) system(x *exchange.Exchange, _ *http.Request, _ berth.Caller) error {
	return x.JSON(http.StatusOK, map[string]string{"prompt": d.Prompt})
}

// A detail is the body of an error.
type detail struct {
	Detail any `json:"detail"` // a text, or a list of faults
}

// A fault is an error in a parameter or a field.
type fault struct {
	Type  string `json:"type"`
	Loc   []any  `json:"loc"` // "query", "path" or "body", and its name
	Msg   string `json:"msg"`
	Input any    `json:"input"`
}

// faults is the error of a request whose parameters or fields are wrong.
type faults []fault

func (f faults) Error() string { return f[0].Msg }

// A plain error has a body of its own.
type plain struct {
	status int
	body   any
}

func (p *plain) Error() string { return http.StatusText(p.status) }

// refused returns an error with a text.
func refused(status int, text string) error { return &plain{status, detail{text}} }

// writeError answers with an error in the form of the API.
func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	if status == http.StatusUnauthorized {
		x.Header().Set("WWW-Authenticate", "Bearer")
	}
	_ = x.JSON(status, detail{e.Message})
}

// fail answers a request that failed.
func fail(x *exchange.Exchange, r *http.Request, err error) {
	if wrong, ok := errors.AsType[faults](err); ok && !x.Started() {
		_ = x.JSON(http.StatusUnprocessableEntity, detail{wrong})
		return
	}
	if own, ok := errors.AsType[*plain](err); ok && !x.Started() {
		_ = x.JSON(own.status, own.body)
		return
	}
	x.Fail(r, err)
}

// ended returns the cause of the end of a request, if it has ended.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

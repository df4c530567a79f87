package api

import (
	"context"
	_ "embed" // the page
	"html/template"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/nofile"
)

// health serves the health checks, and what this server is. They need no key.
type health struct {
	build berth.Build
	ready func(context.Context) []ReadyCheck // may be nil
	// console reports whether the web console is served.
	console bool
	state   StatusFunc // nil shows no status
}

// A ReadyCheck is the result of the check of one part of the server.
type ReadyCheck struct {
	Name    string
	OK      bool
	Message string // if not OK: the problem, shown to callers without a key too

	// RetryAfter is when the check may pass. Zero means that it is not known.
	RetryAfter time.Duration
}

// A serverIndex describes this server and has links to more.
type serverIndex struct {
	Name          string `json:"name"`
	Description   string `json:"description"`
	Version       string `json:"version"`
	API           string `json:"api"`               // path
	OpenAPI       string `json:"openapi"`           // path of the description of all routes
	Reference     string `json:"reference"`         // path of the same description as pages
	Health        string `json:"health"`            // path
	Build         string `json:"build"`             // path of the version, commit and date
	Ready         string `json:"ready"`             // path
	Console       string `json:"console,omitempty"` // path of the web console, if it is on
	Documentation string `json:"documentation"`
}

//go:embed index.html
var indexText string

var indexPage = template.Must(template.New("index").Parse(indexText))

// index serves GET /: as a page if the client prefers one, as browsers do, and otherwise as JSON.
func (h *health) index(w http.ResponseWriter, r *http.Request) {
	index := serverIndex{Name: "Berth", Version: h.build.Version, API: "/v1",
		OpenAPI: "/openapi.json", Reference: "/docs/api/",
		Health: "/healthz", Ready: "/readyz", Build: "/version",
		Description:   "A self-hosted server for OpenAI's Responses API that gives each response a sandboxed Linux container. Set the base URL of your client to this address with /v1.",
		Documentation: documentationPath}
	if h.console {
		index.Console = "/console/"
	}
	w.Header().Add("Vary", "Accept")
	if !wantsPage(r) {
		_ = exchange.WriteJSON(w, http.StatusOK, index)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = indexPage.Execute(w, index)
}

// wantsPage reports whether the request names HTML as a type that it accepts. Clients of APIs
// accept JSON, or everything.
func wantsPage(r *http.Request) bool {
	for accepted := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if kind, _, err := mime.ParseMediaType(accepted); err == nil && kind == "text/html" {
			return true
		}
	}
	return false
}

// version serves GET /version.
func (h *health) version(w http.ResponseWriter, _ *http.Request) {
	_ = exchange.WriteJSON(w, http.StatusOK, h.build)
}

type readyResult struct {
	Status  string `json:"status"`            // ok or failing
	Message string `json:"message,omitempty"` // if it is failing
}

type readyStatus struct {
	Status string                 `json:"status"` // ready or not_ready
	Checks map[string]readyResult `json:"checks"`
}

// readyz serves GET /readyz. It answers 200 if all checks pass, otherwise 503.
func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	if x, ok := w.(*exchange.Exchange); ok {
		x.LogQuietly() // Ready logs changes
	}
	body := readyStatus{"ready", map[string]readyResult{}}
	status, wait := http.StatusOK, time.Duration(0)
	if h.ready != nil {
		for _, c := range h.ready(r.Context()) {
			if c.OK {
				body.Checks[c.Name] = readyResult{Status: "ok"}
				continue
			}
			body.Checks[c.Name] = readyResult{Status: "failing", Message: c.Message}
			body.Status, status = "not_ready", http.StatusServiceUnavailable
			wait = max(wait, c.RetryAfter)
		}
	}
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	_ = exchange.WriteJSON(w, status, body)
}

type healthStatus struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}

// healthz serves GET /healthz. It answers 200 unless the process has run out of file
// descriptors.
func (h *health) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := nofile.Available(); err != nil {
		_ = exchange.WriteJSON(w, http.StatusServiceUnavailable, healthStatus{"the server has no file descriptors left",
			h.build.Version})
		return
	}
	_ = exchange.WriteJSON(w, http.StatusOK, healthStatus{"ok", h.build.Version})
}

package api

import (
	"context"
	"net/http"

	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/nofile"
)

// health serves the health checks, and what this server is. They need no key.
type health struct {
	version string
	ready   func(context.Context) []ReadyCheck // may be nil
}

// A ReadyCheck is the result of the check of one part of the server.
type ReadyCheck struct {
	Name    string
	OK      bool
	Message string // if not OK: the problem, shown to callers without a key too
}

type serverIndex struct {
	Name          string `json:"name"`
	Description   string `json:"description"`
	Version       string `json:"version"`
	API           string `json:"api"`     // path
	OpenAPI       string `json:"openapi"` // path of the description of all routes
	Health        string `json:"health"`  // path
	Ready         string `json:"ready"`   // path
	Documentation string `json:"documentation"`
}

// index serves GET /: what this server is, and where to go on.
func (h *health) index(w http.ResponseWriter, _ *http.Request) {
	_ = exchange.WriteJSON(w, http.StatusOK, serverIndex{"Berth", "A self-hosted server for OpenAI's Responses API that gives each response a sandboxed Linux container. Set the base URL of your client to this address with /v1.",
		h.version, "/v1", "/openapi.json", "/healthz", "/readyz", "https://github.com/berth-run/berth/tree/main/docs"})
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
	body := readyStatus{"ready", map[string]readyResult{}}
	status := http.StatusOK
	if h.ready != nil {
		for _, c := range h.ready(r.Context()) {
			if c.OK {
				body.Checks[c.Name] = readyResult{Status: "ok"}
				continue
			}
			body.Checks[c.Name] = readyResult{Status: "failing", Message: c.Message}
			body.Status, status = "not_ready", http.StatusServiceUnavailable
		}
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
		_ = exchange.WriteJSON(w, http.StatusServiceUnavailable, healthStatus{"the server has no file descriptors left", h.version})
		return
	}
	_ = exchange.WriteJSON(w, http.StatusOK, healthStatus{"ok", h.version})
}

package api

import (
	"context"
	"net/http"

	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/nofile"
)

// health answers whether the server serves, also to callers without a key.
type health struct {
	version string
	ready   func(context.Context) []ReadyCheck // may be nil
}

// A ReadyCheck is the result of checking one thing that the server needs.
type ReadyCheck struct {
	Name    string
	OK      bool
	Message string // shown without a key, if it is not OK
}

// readyz answers whether the server can do its work, also to a caller without a key: 200 if
// it can, otherwise 503.
func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	type result struct {
		Status  string `json:"status"`
		Message string `json:"message,omitempty"`
	}
	body := struct {
		Status string            `json:"status"`
		Checks map[string]result `json:"checks"`
	}{"ready", map[string]result{}}
	status := http.StatusOK
	if h.ready != nil {
		for _, c := range h.ready(r.Context()) {
			if c.OK {
				body.Checks[c.Name] = result{Status: "ok"}
				continue
			}
			body.Checks[c.Name] = result{Status: "failing", Message: c.Message}
			body.Status, status = "not_ready", http.StatusServiceUnavailable
		}
	}
	_ = exchange.WriteJSON(w, status, body)
}

// healthz answers that the process serves, also to a caller without a key. It fails when
// the process has no file descriptors left.
func (h *health) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := nofile.Available(); err != nil {
		_ = exchange.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "the server has no file descriptors left", "version": h.version})
		return
	}
	_ = exchange.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": h.version})
}

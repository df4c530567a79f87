package api

import (
	"net/http"

	"github.com/berth-run/berth/api/exchange"
)

// A ReadyCheck is the result of looking at one thing that the server needs.
type ReadyCheck struct {
	Name    string
	OK      bool
	Message string // for anybody, if it is not OK
}

// readyz says whether the server can do its work, to anybody: 200 if it can, else 503.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	type result struct {
		Status  string `json:"status"`
		Message string `json:"message,omitempty"`
	}
	body := struct {
		Status string            `json:"status"`
		Checks map[string]result `json:"checks"`
	}{"ready", map[string]result{}}
	status := http.StatusOK
	if s.Ready != nil {
		for _, c := range s.Ready(r.Context()) {
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

package egress

import (
	"net/http"
	"sync/atomic"
)

// A Switch serves a container's guest by the gate that was set last. It is safe for concurrent use.
type Switch struct{ gate atomic.Pointer[Gate] }

// Set sets the gate and ends the former one.
func (s *Switch) Set(g *Gate) {
	if former := s.gate.Swap(g); former != nil {
		former.End()
	}
}

// ServeHTTP serves the guest's requests. Without a gate, all are refused.
func (s *Switch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g := s.gate.Load(); g != nil {
		g.ServeHTTP(w, r)
		return
	}
	http.Error(w, "the sandbox has no network", http.StatusForbidden)
}

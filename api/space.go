package api

import (
	"net/http"
	"slices"
	"strings"
)

// spaceless are the POST routes that are served while disk space is low: what they
// store is little, or nothing, or the engine decides.
var spaceless = []string{
	"POST /v1/responses", // the engine refuses those that are to be stored
	"POST /v1/chat/completions",
	"POST /v1/responses/input_tokens",
	"POST /v1/responses/compact",
	"POST /v1/responses/{response}/cancel",
	"POST /v1/containers/{container}/pause",
	"POST /v1/containers/{container}/resume",
	"POST /v1/containers/{container}/ports/{port}",
	"POST /v1/threads/{thread}/runs/{run}/cancel",
}

// admit refuses a request that would store something while disk space is low.
func (s *server) admit(r *http.Request) error {
	if s.Space == nil || !strings.HasPrefix(r.Pattern, "POST ") || slices.Contains(spaceless, r.Pattern) {
		return nil
	}
	return s.Space.Admit()
}

package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
)

// Every request that changes something counts against its project's requests in a minute
// and, unless it stores nothing, against its storage. A route that is not in one of these
// tables has both bounds.
var (
	// asksModel are the routes whose requests the engine counts, for each response.
	asksModel = map[string]bool{
		"POST /v1/responses":                                       true,
		"POST /v1/responses/compact":                               true,
		"POST /v1/responses/{response}/replay":                     true,
		"POST /v1/chat/completions":                                true,
		"POST /v1/threads/runs":                                    true,
		"POST /v1/threads/{thread}/runs":                           true,
		"POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs": true,
	}

	// storesNothing are the routes that a project whose storage is full may use, beside
	// those that read or delete.
	storesNothing = map[string]bool{
		"POST /v1/responses/{response}/cancel":               true,
		"POST /v1/responses/input_tokens":                    true,
		"POST /v1/responses/compact":                         true,
		"POST /v1/threads/{thread}/runs/{run}/cancel":        true,
		"POST /v1/containers/{container}/pause":              true,
		"POST /v1/containers/{container}/resume":             true,
		"POST /v1/containers/{container}/ports/{port}":       true,
		"POST /v1/traces/ingest":                             true,
		"POST /v1/webhook_endpoints/{webhook}/rotate_secret": true,
	}

	// throughContainer are the routes whose requests go to what runs in a container, which
	// has limits of its own.
	throughContainer = map[string]bool{
		"/v1/containers/{container}/guest/{path...}":        true,
		"/v1/containers/{container}/ports/{port}/{path...}": true,
	}
)

// reserve checks the bounds of a request before its body is read. release must be called
// when it has been answered.
func (s *server) reserve(x *exchange, r *http.Request, c berth.Caller) (release func(), err error) {
	x.room = func(context.Context, int64) error { return nil }
	if s.Quota == nil || throughContainer[r.Pattern] || strings.HasPrefix(r.Pattern, "GET ") || strings.HasPrefix(r.Pattern, "DELETE ") {
		return func() {}, nil
	}
	if !asksModel[r.Pattern] {
		if err := s.Quota.Write(r.Context(), c.Project); err != nil {
			return nil, err
		}
	}
	if storesNothing[r.Pattern] {
		return func() {}, nil
	}
	var held []func()
	x.room = func(ctx context.Context, bytes int64) error {
		release, err := s.Quota.Reserve(ctx, c.Project, bytes)
		if err == nil {
			held = append(held, release)
		}
		return err
	}
	release = func() {
		for _, f := range held {
			f()
		}
	}
	bytes := max(r.ContentLength, 0)
	if isForm(r) || r.Pattern == "POST /v1/bundles" {
		bytes = 0 // what is stored of it is counted as it comes in
	}
	return release, x.room(r.Context(), bytes)
}

func isForm(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/form-data")
}

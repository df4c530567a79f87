package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-run/berth/guest"
)

// measureE2B measures from the request for a sandbox of E2B's API to the end of its first command,
// beside a container. Both are taken from the pool, in turn.
func measureE2B(ctx context.Context, b *bench) (err error) {
	t := &table{title: "E2B's API: create → first command"}
	defer b.show(t)
	s, err := b.serve(ctx, onePool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	var sandboxes, containers, killed series
	for done := 0; done < b.n && ctx.Err() == nil; {
		if err := s.await(ctx, time.Minute, func() bool {
			n, err := s.figure(ctx, "berth_pool_ready")
			return err == nil && n >= pooled
		}); err != nil {
			return fmt.Errorf("the pool is not filled: %w", err)
		}
		for range min(pooled/2, b.n-done) {
			var sandbox, id string
			sandboxes.took(timed(func() (err error) { sandbox, err = s.firstSandbox(ctx); return err }))
			containers.took(timed(func() (err error) { id, err = s.first(ctx, nil); return err }))
			killed.took(timed(func() error { return s.do(ctx, http.MethodDelete, "/sandboxes/"+sandbox, nil, nil) }))
			if err := s.delete(ctx, id); err != nil {
				return err
			}
			done++
		}
	}
	t.add(row{what: "from the pool, one after another", unit: "ms", series: sandboxes, beside: "`POST /v1/containers`",
		other: containers})
	t.add(row{what: "kill", unit: "ms", series: killed})
	misses, err := s.figure(ctx, "berth_pool_misses_total")
	if misses > 0 {
		t.note("The pool was empty %.0f times.", misses)
	}
	return err
}

// firstSandbox makes a sandbox and runs its first command.
func (s *server) firstSandbox(ctx context.Context) (id string, err error) {
	var made struct {
		ID    string `json:"sandboxID"`
		Token string `json:"envdAccessToken"`
	}
	if err := s.do(ctx, http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 300},
		&made); err != nil {
		return "", err
	}
	client := guest.NewHTTPClient(s.url, &http.Client{Transport: inSandbox{s.http.Transport, made.ID, made.Token}})
	_, err = execute(ctx, client, "/bin/true")
	return made.ID, err
}

// inSandbox sends requests to envd of a sandbox.
type inSandbox struct {
	next      http.RoundTripper
	id, token string
}

func (t inSandbox) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("E2b-Sandbox-Id", t.id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", t.token)
	if t.next == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return t.next.RoundTrip(r)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// desktopPool has desktops ready.
const desktopPool = "containers:\n  pool: 0\n  pools:\n    - {template: desktop, size: 2}\n"

// desktopRuns is how many desktops are started.
const desktopRuns = 5

// measureDesktop measures the computer tool in a container: from the request for a response to its
// end, with a model that answers immediately.
func measureDesktop(ctx context.Context, b *bench) (err error) {
	t := &table{title: "The computer tool in a container"}
	if _, err := os.Stat(filepath.Join(b.images, "names", "desktop")); err != nil {
		return errors.New("the template desktop is missing: bin/berth image build desktop --state " +
			filepath.Dir(b.images))
	}
	defer b.show(t)
	s, err := b.serve(ctx, desktopPool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	var first, still, acted series
	last := ""
	for range desktopRuns {
		if err := s.await(ctx, 2*time.Minute, func() bool {
			n, err := s.figure(ctx, "berth_pool_ready")
			return err == nil && n >= 2
		}); err != nil {
			return fmt.Errorf("the pool is not filled: %w", err)
		}
		first.took(timed(func() (err error) {
			last, err = s.act(ctx, "", `{"type": "screenshot"}`)
			return err
		}))
	}
	t.add(row{what: "the first screenshot of a new desktop, from a pool", unit: "ms", series: first, target: "2000 ms"})
	step := func(actions string) func() error {
		return func() (err error) {
			last, err = s.act(ctx, last, actions)
			return err
		}
	}
	for range min(b.n, 50) {
		still.took(timed(step(`{"type": "screenshot"}`)))
		acted.took(timed(step(`{"type": "click", "x": 500, "y": 300}`)))
	}
	t.add(row{what: "a screenshot", unit: "ms", series: still})
	t.add(row{what: "a click, and a screenshot of what it did", unit: "ms", series: acted, target: "150 ms"})
	return ctx.Err()
}

// act carries out actions in the container of a response's chain, or in a new one, and returns the
// response's id.
func (s *server) act(ctx context.Context, previous, actions string) (string, error) {
	body := map[string]any{"model": "scripted", "input": "```json computer\n{\"actions\": [" + actions + "]}\n```",
		"tools": []any{map[string]any{"type": "computer", "environment": map[string]any{"type": "container_auto"}}}}
	if previous != "" {
		body["previous_response_id"] = previous
	}
	var r struct {
		ID     string
		Output []struct {
			Type  string
			Berth json.RawMessage
		}
	}
	if err := s.do(ctx, http.MethodPost, "/v1/responses", body, &r); err != nil {
		return "", err
	}
	if len(r.Output) < 2 || r.Output[1].Type != "computer_call_output" || r.Output[1].Berth != nil {
		return "", fmt.Errorf("the response %s has no screenshot: %v", r.ID, r.Output)
	}
	return r.ID, nil
}

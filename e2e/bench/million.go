package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// millionRounds is how often the full and the empty server are measured in turn.
	millionRounds = 5
	// deletions is how many responses are deleted.
	deletions = 40_000
	// shrinkTime is how long the database may take to return the space of deleted rows.
	shrinkTime = 5 * time.Minute
)

// measureMillion measures a new response of a server that stores many, beside one that
// stores none, the space of a stored response, and the space that deletions return.
func measureMillion(ctx context.Context, b *bench) (err error) {
	t := &table{title: fmt.Sprintf("A new response when %d are stored", b.rows)}
	defer b.show(t)
	model := newModel()
	defer model.Close()
	empty, err := b.serve(ctx, overheadConfig(model.URL))
	if err != nil {
		return err
	}
	defer stopped(empty, &err)
	full, err := b.serve(ctx, overheadConfig(model.URL))
	if err != nil {
		return err
	}
	defer stopped(full, &err)
	ids, err := b.fill(ctx, t, full)
	if err != nil {
		return err
	}
	if err := b.newResponses(ctx, t, empty, full); err != nil {
		return err
	}
	return b.deleteMany(ctx, t, full, ids[len(ids)-min(deletions, len(ids)/2):])
}

// fill stores b.rows responses in a server's store and returns their ids. The server answers
// some of them. While it is stopped, its store writes copies with ids of their own.
func (b *bench) fill(ctx context.Context, t *table, s *server) (ids []string, err error) {
	empty, err := s.stored()
	if err != nil {
		return nil, err
	}
	in := map[string]any{"model": "m", "input": seedQuestion}
	answered := min(20*b.n, b.rows)
	for range answered {
		var made struct{ ID string }
		if err := s.do(ctx, http.MethodPost, "/v1/responses", in, &made); err != nil {
			return nil, err
		}
		ids = append(ids, made.ID)
	}
	if err := s.halt(); err != nil {
		return nil, err
	}
	before, err := s.stored()
	if err != nil {
		return nil, err
	}
	t.add(row{what: fmt.Sprintf("disk space of a response of %d words, answered by the server", answerWords+1),
		unit: "KB", series: one((before - empty) / 1e3 / float64(answered)), target: "6 KB"})
	began := time.Now()
	copies, err := seed(ctx, s.state, ids[0], b.rows-answered)
	t.add(row{what: "copies written by the store", unit: "/s",
		series: one(float64(len(copies)) / time.Since(began).Seconds())})
	if err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}
	after, err := s.stored()
	if err != nil {
		return nil, err
	}
	if len(copies) > 0 {
		t.add(row{what: "disk space of a copy", unit: "KB", series: one((after - before) / 1e3 / float64(len(copies)))})
	}
	var started series
	started.took(timed(func() error { return s.start(ctx) }))
	t.add(row{what: "start of the server until it answers", unit: "ms", series: started})
	return append(ids, copies...), errors.Join(started.errs...)
}

// newResponses measures new responses of both servers in turn.
func (b *bench) newResponses(ctx context.Context, t *table, empty, full *server) error {
	kinds := []struct {
		what  string
		body  []byte
		width int
	}{
		{"new response", mustJSON(map[string]any{"model": "m", "input": seedQuestion}), 1},
		{"new response, streamed, 16 at once",
			mustJSON(map[string]any{"model": "m", "input": seedQuestion, "stream": true}), 16},
	}
	for _, kind := range kinds {
		var figures [2]overheadFigures
		for round := range millionRounds + 1 {
			for i, s := range []*server{empty, full} {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				at := target{name: kind.what, url: s.url + "/v1/responses", body: kind.body, stream: kind.width > 1,
					pids: []int{s.cmd.Process.Pid}}
				// the first opens connections and fills caches
				if got := at.load(ctx, s.http, kind.width, 4*b.n); round > 0 {
					figures[i].join(got)
				}
			}
		}
		without, with := figures[0], figures[1]
		t.add(row{what: kind.what, unit: "ms", series: with.whole, beside: "with none", other: without.whole,
			target: "1.2×"})
		t.add(row{what: kind.what + ": processor time", unit: "ms", series: with.processor, beside: "with none",
			other: without.processor, target: "1.2×"})
	}
	return nil
}

// deleteMany deletes responses and waits until the database has returned their space.
func (b *bench) deleteMany(ctx context.Context, t *table, s *server, ids []string) error {
	before, err := s.stored()
	if err != nil {
		return err
	}
	began := time.Now()
	deleted := atOnce(16, len(ids), func(i int) error {
		return s.do(ctx, http.MethodDelete, "/v1/responses/"+ids[i], nil, nil)
	})
	t.add(row{what: fmt.Sprintf("%d deletions, 16 at once", len(ids)), unit: "ms", series: deleted})
	t.add(row{what: "deletions a second", unit: "/s", series: one(float64(len(ids)) / time.Since(began).Seconds())})
	least, since := before, time.Now()
	for deadline := since.Add(shrinkTime); ; {
		now, err := s.stored()
		if err != nil {
			return err
		}
		if now < least-1e6 {
			least, since = now, time.Now()
		}
		if time.Now().After(deadline) || time.Since(since) > shrinkTime/5 {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	content := before * float64(len(ids)) / float64(b.rows)
	t.add(row{what: "space returned to the disk", unit: "MB", series: one((before - least) / 1e6),
		beside: "share of what was deleted", other: one(content / 1e6)})
	t.add(row{what: "until it was returned", unit: "s", series: one(since.Sub(began).Seconds())})
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ballast is the content of a container that is not small.
const ballast = 100 // MB

// measureLife measures what can be done with whole containers: one that is as it was
// made, and one with files and memory.
func measureLife(ctx context.Context, b *bench) (err error) {
	t := &table{title: "Pause, snapshot, fork"}
	defer b.show(t)
	s, err := b.serve(ctx, noPool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	l := &lives{s: s, n: max(1, b.n/10)}
	empty, err := s.first(ctx, nil)
	if err != nil {
		return err
	}
	full, err := s.first(ctx, nil)
	if err != nil {
		return err
	}
	// Content that cannot be compressed, on disk; and as much in a process's memory.
	if _, err := s.sh(ctx, full, fmt.Sprintf("head -c %dM /dev/urandom >/mnt/data/ballast; nohup python3 -c "+
		`"import os, time; b = os.urandom(%d << 20); open('/mnt/data/held', 'w'); time.sleep(1e6)" >/dev/null 2>&1 & until [ -e /mnt/data/held ]; do sleep 0.05; done`,
		ballast, ballast)); err != nil {
		return err
	}
	paused, resumed := inTurn(ctx, b.n, func() error {
		return l.post(ctx, empty, "pause")
	}, func() error { return l.post(ctx, empty, "resume") })
	t.add(row{what: "pause", unit: "ms", series: paused})
	t.add(row{what: "resume", unit: "ms", series: resumed})
	var woken series
	for range b.n {
		if err := l.post(ctx, empty, "pause"); err != nil {
			return err
		}
		woken.took(timed(func() error { _, err := s.exec(ctx, empty, "/bin/true"); return err }))
	}
	t.add(row{what: "`true` in a paused container", unit: "ms", series: woken})

	var cold series
	for range l.n {
		l.made(ctx, &cold, func() (string, error) { return s.first(ctx, nil) })
	}
	for _, c := range []struct{ id, what string }{{empty, "empty"}, {full, fmt.Sprintf("%d MB", ballast)}} {
		for _, memory := range []bool{false, true} {
			what := "files, " + c.what
			if memory {
				what = "files and memory, " + c.what
			}
			l.measure(ctx, t, c.id, what, memory, cold)
			l.forks(ctx, t, c.id, what, memory)
		}
	}
	return ctx.Err()
}

// lives is a server whose containers are measured as wholes.
type lives struct {
	s *server
	n int
}

func (l *lives) post(ctx context.Context, id, what string) error {
	return l.s.do(ctx, http.MethodPost, "/v1/containers/"+id+"/"+what, nil, nil)
}

// measure snapshots a container, restores it and forks it.
func (l *lives) measure(ctx context.Context, t *table, id, what string, memory bool, cold series) {
	request := map[string]any{"memory": memory}
	var kept, restored, forked series
	for range l.n {
		if ctx.Err() != nil {
			return
		}
		var snap struct{ ID string }
		kept.took(timed(func() error {
			return l.s.do(ctx, http.MethodPost, "/v1/containers/"+id+"/snapshots", request, &snap)
		}))
		if snap.ID == "" {
			continue
		}
		l.made(ctx, &restored, func() (string, error) {
			return l.s.first(ctx, map[string]any{"berth": map[string]any{"snapshot_id": snap.ID}})
		})
		l.made(ctx, &forked, func() (string, error) {
			var c struct{ ID string }
			err := l.s.do(ctx, http.MethodPost, "/v1/containers/"+id+"/fork", request, &c)
			if err == nil {
				_, err = l.s.exec(ctx, c.ID, "/bin/true")
			}
			return c.ID, err
		})
		if err := l.s.do(ctx, http.MethodDelete, "/v1/snapshots/"+snap.ID, nil, nil); err != nil {
			kept.add(0, err)
		}
	}
	t.add(row{what: "snapshot: " + what, unit: "ms", series: kept})
	t.add(row{what: "create from it → first command", unit: "ms", series: restored, beside: "create cold", other: cold})
	t.add(row{what: "fork → first command", unit: "ms", series: forked, beside: "create cold", other: cold})
}

// forks measures sixteen forks that one request asks for, beside sixteen requests one after another.
func (l *lives) forks(ctx context.Context, t *table, id, what string, memory bool) {
	const n = 16
	fork := func(path string, body map[string]any) (made []string, err error) {
		var answer struct {
			ID   string
			Data []struct{ ID string }
		}
		err = l.s.do(ctx, http.MethodPost, "/v1/containers/"+id+path, body, &answer)
		for _, c := range answer.Data {
			made = append(made, c.ID)
		}
		if answer.ID != "" {
			made = append(made, answer.ID)
		}
		return made, err
	}
	var all []string
	remove := func() {
		for _, id := range all {
			_ = l.s.delete(ctx, id)
		}
		all = nil
	}
	together, alone := inTurn(ctx, 3, func() (err error) {
		defer func() { remove() }()
		all, err = fork("/forks", map[string]any{"memory": memory, "count": n})
		return err
	}, func() error {
		defer func() { remove() }()
		for range n {
			one, err := fork("/fork", map[string]any{"memory": memory})
			if err != nil {
				return err
			}
			all = append(all, one...)
		}
		return nil
	})
	t.add(row{what: fmt.Sprintf("%d forks: %s", n, what), unit: "ms", series: together, beside: "one after another",
		other: alone})
}

// made measures until a container has been made, and deletes it.
func (l *lives) made(ctx context.Context, into *series, f func() (id string, err error)) {
	began := time.Now()
	id, err := f()
	took := time.Since(began)
	if id != "" {
		err = errors.Join(err, l.s.delete(ctx, id))
	}
	into.took(took, err)
}

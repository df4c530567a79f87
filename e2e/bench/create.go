package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox"
)

const (
	noPool  = "containers: {pool: 0}\n"
	pooled  = 10 // sandboxes that are ready before as many are asked for
	onePool = "containers: {pool: 10}\n"
)

// measureCreate measures from the request for a container to the end of its first
// command, as a client sees it that keeps its connections.
func measureCreate(ctx context.Context, b *bench) error {
	t := &table{title: "Create → first command"}
	defer b.show(t)
	if err := b.createPooled(ctx, t); err != nil {
		return err
	}
	if err := b.createCold(ctx, t); err != nil {
		return err
	}
	if err := b.createBursts(ctx, t); err != nil {
		return err
	}
	return b.createByDriver(ctx, t)
}

// first makes a container and runs its first command.
func (s *server) first(ctx context.Context, more map[string]any) (id string, err error) {
	if id, err = s.create(ctx, more); err == nil {
		_, err = s.exec(ctx, id, "/bin/true")
	}
	return id, err
}

// createPooled measures containers that are taken from the pool, one after another
// as long as it lasts.
func (b *bench) createPooled(ctx context.Context, t *table) (err error) {
	s, err := b.serve(ctx, onePool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	all, err := s.firstPooled(ctx, b.n, time.Minute)
	if err != nil {
		return err
	}
	t.add(row{what: "from the pool, one after another", unit: "ms", series: all, target: "12 / 40 ms"})
	misses, err := s.figure(ctx, "berth_pool_misses_total")
	if misses > 0 {
		t.note("The pool was empty %.0f times.", misses)
	}
	return err
}

// firstPooled measures n containers of a server with onePool, as long as the pool lasts. It waits
// until the pool is full again.
func (s *server) firstPooled(ctx context.Context, n int, patience time.Duration) (all series, err error) {
	for done := 0; done < n && ctx.Err() == nil; {
		full := func() bool { ready, err := s.figure(ctx, "berth_pool_ready"); return err == nil && ready >= pooled }
		if err := s.await(ctx, patience, full); err != nil {
			return all, fmt.Errorf("the pool is not filled: %w", err)
		}
		var ids []string
		for range min(pooled, n-done) {
			all.took(timed(func() error {
				id, err := s.first(ctx, nil)
				if id != "" {
					ids = append(ids, id)
				}
				return err
			}))
			done++
		}
		for _, id := range ids {
			if err := s.delete(ctx, id); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// createCold measures containers that are started when they are asked for, and
// beside them runsc as others use it.
func (b *bench) createCold(ctx context.Context, t *table) (err error) {
	s, err := b.serve(ctx, noPool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	alone, remove, err := b.runsc()
	if err != nil {
		return err
	}
	defer remove()
	var deleted series
	cold, run := inTurn(ctx, b.n, func() error {
		id, err := s.first(ctx, nil)
		defer func() { deleted.took(timed(func() error { return s.delete(ctx, id) })) }()
		return err
	}, func() error { return alone(ctx) })
	t.add(row{what: "cold, one after another", unit: "ms", series: cold, beside: "`runsc run` of true", other: run,
		target: "110 ms"})

	ids := make([]string, b.n)
	began := time.Now()
	crowd := atOnce(b.n, b.n, func(i int) (err error) { ids[i], err = s.first(ctx, nil); return err })
	whole := time.Since(began)
	t.add(row{what: fmt.Sprintf("cold, %d at once", b.n), unit: "ms", series: crowd, target: fmt.Sprintf("%d of %d",
		b.n, b.n)})
	t.add(row{what: "until the last of them", unit: "s", series: one(whole.Seconds()), target: "8 s of 100"})
	crowd = atOnce(b.n, b.n, func(i int) error { return s.delete(ctx, ids[i]) })
	t.add(row{what: "DELETE of one", unit: "ms", series: deleted})
	t.add(row{what: fmt.Sprintf("DELETE, %d at once", b.n), unit: "ms", series: crowd})
	return ctx.Err()
}

// createBursts measures containers that are asked for at once from a server with the default configuration: a first
// burst, and one after the pool has learnt from it.
func (b *bench) createBursts(ctx context.Context, t *table) (err error) {
	s, err := b.serve(ctx, "")
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	learnt := func() bool {
		ready, err1 := s.figure(ctx, "berth_pool_ready")
		target, err2 := s.figure(ctx, "berth_pool_target")
		return err1 == nil && err2 == nil && ready >= target
	}
	for _, when := range []string{"first burst", "next burst"} {
		if err := s.await(ctx, 5*time.Minute, learnt); err != nil {
			return fmt.Errorf("the pool is not filled: %w", err)
		}
		ids := make([]string, b.n)
		began := time.Now()
		crowd := atOnce(b.n, b.n, func(i int) (err error) { ids[i], err = s.first(ctx, nil); return err })
		whole := time.Since(began)
		t.add(row{what: fmt.Sprintf("default configuration, %d at once, %s", b.n, when), unit: "ms", series: crowd,
			target: fmt.Sprintf("%d of %d", b.n, b.n)})
		t.add(row{what: "until the last of them", unit: "s", series: one(whole.Seconds())})
		_ = atOnce(b.n, b.n, func(i int) error { return s.delete(ctx, ids[i]) })
	}
	return ctx.Err()
}

// createByDriver measures the steps that a cold start is made of, without HTTP and
// without the store.
func (b *bench) createByDriver(ctx context.Context, t *table) error {
	state := filepath.Join(b.state, "driver")
	d, err := b.openDriver(state)
	if err != nil {
		return err
	}
	rootfs, err := b.rootfs()
	if err != nil {
		return err
	}
	var start, answer, command, destroy series
	for i := range min(b.n, 30) {
		if ctx.Err() != nil {
			break
		}
		id := fmt.Sprintf("bench-%d", i)
		start.took(timed(func() error {
			if err := d.Create(ctx, sandbox.Spec{ID: id, Template: sandbox.Template{Path: rootfs}}); err != nil {
				return err
			}
			return d.Start(ctx, id)
		}))
		c := guest.NewClient(dialer(d, id))
		answer.took(timed(func() error { return c.Ping(ctx) }))
		command.took(timed(func() error { _, err := execute(ctx, c, "/bin/true"); return err }))
		c.Close()
		destroy.took(timed(func() error { return d.Destroy(ctx, id) }))
	}
	t.add(row{what: "of a cold start: until the guest listens", unit: "ms", series: start})
	t.add(row{what: "of a cold start: its first answer", unit: "ms", series: answer})
	t.add(row{what: "of a cold start: its first command", unit: "ms", series: command})
	t.add(row{what: "of DELETE: the sandbox", unit: "ms", series: destroy})
	return ctx.Err()
}

// runsc returns what runs true in a sandbox of its own on the same template, as
// runsc does by default.
func (b *bench) runsc() (run func(context.Context) error, remove func(), err error) {
	rootfs, err := b.rootfs()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp(b.state, "runsc-")
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(specs.Spec{Version: "1.1.0", Linux: &specs.Linux{}, Root: &specs.Root{Path: rootfs},
		Process: &specs.Process{Args: []string{"/bin/true"}, Cwd: "/"}})
	if err != nil {
		return nil, nil, err
	}
	n := 0
	return func(ctx context.Context) error {
		n++
		return host(ctx, filepath.Join(b.bin, "berth-runsc"), "--root="+filepath.Join(dir, "root"), "--network=none",
			"--ignore-cgroups",
			"--overlay2=root:memory", "run", "--bundle="+dir, fmt.Sprintf("c%d", n))
	}, func() { os.RemoveAll(dir) }, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600)
}

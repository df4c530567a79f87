package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
)

// measureExec measures commands in a container that runs, over HTTP as berth exec
// does, and beside them the same on this machine.
func measureExec(ctx context.Context, b *bench) (err error) {
	t := &table{title: "Commands in a container"}
	defer b.show(t)
	s, err := b.serve(ctx, noPool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	id, err := s.first(ctx, nil)
	if err != nil {
		return err
	}
	rootfs, err := b.rootfs()
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what, target string
		command      []string
	}{
		{"`true`", "7 ms", []string{"/bin/true"}},
		{"`sh -c true`", "", []string{"/bin/sh", "-c", "true"}},
		{"`python3 -c 'print(1)'`", "", []string{"/usr/bin/python3", "-c", "print(1)"}},
	} {
		inside := func() error { _, err := s.exec(ctx, id, c.command[0], c.command[1:]...); return err }
		outside := func() error { return host(ctx, "chroot", append([]string{rootfs}, c.command...)...) }
		if err := inside(); err != nil { // the first reads what all need
			return err
		}
		in, out := inTurn(ctx, b.n, inside, outside)
		t.add(row{what: c.what, unit: "ms", series: in, beside: "on the host", other: out, target: c.target})
	}
	if err := b.execByRunsc(ctx, t, s, id); err != nil {
		return err
	}
	return b.execByModel(ctx, t, s, id)
}

// execByRunsc measures the guest beside what runsc itself offers for running
// commands in a sandbox: the same one.
func (b *bench) execByRunsc(ctx context.Context, t *table, s *server, id string) error {
	direct := func() error {
		cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "berth-runsc"), "--root=sealed/runsc", "exec", "s",
			"/bin/true")
		cmd.Dir = filepath.Join(s.state, "gvisor", "sandboxes", id)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	in, out := inTurn(ctx, min(b.n, 30), func() error { _, err := s.exec(ctx, id, "/bin/true"); return err }, direct)
	t.add(row{what: "`true`, and by runsc in the same sandbox", unit: "ms", series: in, beside: "`runsc exec`",
		other: out})

	crowd := atOnce(10, b.n, func(int) error { _, err := s.exec(ctx, id, "/bin/true"); return err })
	t.add(row{what: "`true`, 10 at a time", unit: "ms", series: crowd})
	return nil
}

// execByModel measures whole responses in which a model asks for one command. The
// model recites and takes no time.
func (b *bench) execByModel(ctx context.Context, t *table, s *server, id string) error {
	ask := func(input string) func() error {
		return func() error {
			var r struct{ Status string }
			err := s.do(ctx, http.MethodPost, "/v1/responses", map[string]any{"model": "scripted", "input": input,
				"tools": []any{map[string]any{"type": "shell",
					"environment": map[string]any{"type": "container_reference", "container_id": id}}}}, &r)
			if err == nil && r.Status != "completed" {
				err = fmt.Errorf("the response is %s", r.Status)
			}
			return err
		}
	}
	with, without := inTurn(ctx, b.n, ask("```sh\ntrue\n```"), ask("Say something."))
	t.add(row{what: "a response with one shell call of `true`", unit: "ms", series: with, beside: "one without",
		other: without, target: "12 ms"})
	return ctx.Err()
}

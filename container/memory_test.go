package container_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox/drivertest"
	"github.com/berth-run/berth/store"
)

// An inhabited container runs commands as a model's calls do.
type inhabited struct {
	testing.TB
	k  *container.Service
	id berth.ContainerID
}

func inhabit(tb testing.TB, k *container.Service, req container.CreateRequest) inhabited {
	tb.Helper()
	c, err := k.Create(tb.Context(), byBench, req)
	if err != nil {
		tb.Fatal(err)
	}
	return settle(tb, k, c)
}

func settle(tb testing.TB, k *container.Service, c *berth.Container) inhabited {
	tb.Cleanup(func() { _ = k.Delete(context.Background(), byBench.Project, c.ID) })
	return inhabited{tb, k, c.ID}
}

func (c inhabited) try(ctx context.Context, command string) (out string, err error) {
	call := guest.ShellCall{CallID: berth.NewID(berth.PrefixShellCall), Commands: []string{command},
		Timeout: time.Minute}
	for ev, err := range c.k.Access().Shell(byBench, c.id).Shell(ctx, call) {
		if err != nil {
			return out, err
		}
		if out += string(ev.Data); ev.Kind == guest.ShellExit && ev.ExitCode != 0 {
			return out, fmt.Errorf("exit code %d", ev.ExitCode)
		}
	}
	return out, nil
}

func (c inhabited) sh(command string) string {
	c.Helper()
	out, err := c.try(c.Context(), command)
	if err != nil {
		c.Fatalf("%s: %q, %v", command, out, err)
	}
	return out
}

// counting is a server that counts its requests in memory.
const counting = `cat >/tmp/count.py <<'END'
import os, socket
n, s = 0, socket.socket(socket.AF_UNIX)
s.bind("/tmp/count"); s.listen()
while True:
    c, _ = s.accept()
    n += 1
    c.sendall(f"{n} {os.environ.get('KEY')}".encode()); c.close()
END
setsid python3 /tmp/count.py >/dev/null 2>&1 </dev/null &
until test -S /tmp/count; do sleep .01; done`

const ask = `python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("/tmp/count"); print(s.recv(100).decode())'`

// Processes continue in a container started from their memory, and in a fork. Snapshots contain
// no secrets.
func TestMemory(t *testing.T) {
	k, kept := newGVisorServices(t, 1)
	const value = "the-value-of-the-secret"
	policy := &berth.NetworkPolicy{Type: "allowlist", AllowedDomains: []string{"a.example"},
		DomainSecrets: []berth.DomainSecret{{Domain: "a.example", Name: "KEY", Value: value}}}
	first := inhabit(t, k, container.CreateRequest{Name: "first", NetworkPolicy: policy})
	first.sh(counting)
	placeholder, ok := strings.CutPrefix(strings.TrimSpace(first.sh(ask)), "1 ")
	if !ok || placeholder == "None" || strings.Contains(placeholder, value) {
		t.Fatalf("the program has KEY %q", placeholder)
	}
	s, err := k.Snapshots().Take(t.Context(), byBench.Project, first.id,
		container.SnapshotRequest{Name: "alive", Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Memory || s.MemoryLimit != "1g" || s.Bytes < 1<<20 || s.StoredBytes >= s.Bytes {
		t.Errorf("got %+v", s)
	}
	if got, want := first.sh(ask), "2 "+placeholder+"\n"; got != want {
		t.Errorf("the original continues: got %q, want %q", got, want)
	}
	for range 2 {
		c := inhabit(t, k, container.CreateRequest{Name: "next", Source: berth.ContainerSource{SnapshotID: s.ID}})
		if got, want := c.sh(ask), "2 "+placeholder+"\n"; got != want {
			t.Errorf("from the snapshot: got %q, want %q", got, want)
		}
	}
	forked, err := k.Fork(t.Context(), byBench, first.id,
		container.ForkRequest{SnapshotRequest: container.SnapshotRequest{Memory: true}})
	if err != nil {
		t.Fatal(err)
	}
	fork := settle(t, k, forked)
	for _, c := range []inhabited{first, fork} {
		if got, want := c.sh(ask+"; echo $KEY"), "3 "+placeholder+"\n"+placeholder+"\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	forks, err := k.Forker().Forks(t.Context(), byBench, first.id,
		container.ForkRequest{SnapshotRequest: container.SnapshotRequest{Memory: true}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range forks {
		if f.Err != nil {
			t.Fatalf("fork %d: %v", i, f.Err)
		}
		if got, want := settle(t, k, f.Container).sh(ask), "4 "+placeholder+"\n"; got != want {
			t.Errorf("fork %d: got %q, want %q", i, got, want)
		}
	}
	r, err := kept.Record(t.Context(), byBench.Project, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	content, err := kept.Open(t.Context(), byBench.Project, r)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	image, err := io.ReadAll(content)
	if err != nil || !bytes.Contains(image, []byte(placeholder)) || bytes.Contains(image, []byte(value)) {
		t.Errorf("%v; its memory has the placeholder: %v, and the secret: %v", err,
			bytes.Contains(image, []byte(placeholder)), bytes.Contains(image, []byte(value)))
	}
	_, err = k.Create(t.Context(), byBench, container.CreateRequest{MemoryLimit: "4g",
		Source: berth.ContainerSource{SnapshotID: s.ID}})
	if e, ok := errors.AsType[*berth.Error](err); !ok || e.Param != "memory_limit" {
		t.Errorf("with another limit: got %v", err)
	}
	if all, _, err := kept.List(t.Context(), byBench.Project, store.Page{Limit: 10}); err != nil || len(all) != 1 {
		t.Errorf("got %d snapshots, %v, want the requested one", len(all), err)
	}
}

// The memory of a container in use is not saved: its calls would break.
func TestMemoryInUse(t *testing.T) {
	k, kept := newGVisorServices(t, 0)
	c := inhabit(t, k, container.CreateRequest{})
	c.sh("true")
	ended := make(chan error, 1)
	go func() {
		_, err := c.try(t.Context(), "touch runs; until test -e end; do sleep .01; done")
		ended <- err
	}()
	client, release, err := k.Access().Guest(t.Context(), byBench, c.id)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if body, _, err := client.ReadFile(t.Context(), berth.WorkDir, "runs", ""); err == nil {
			body.Close()
			break
		}
	}
	release()
	want := func(memory bool, code berth.Code) {
		t.Helper()
		_, err := k.Snapshots().Take(t.Context(), byBench.Project, c.id, container.SnapshotRequest{Memory: memory})
		if (code == "") != (err == nil) || err != nil && berth.ErrorCode(err) != code {
			t.Errorf("memory %v: got %v, want %q", memory, err, code)
		}
	}
	want(true, berth.CodeConflict)
	want(false, "")
	c.sh("touch end")
	if err := <-ended; err != nil {
		t.Errorf("the call failed: %v", err)
	}
	if _, err := k.Pause(t.Context(), byBench.Project, c.id); err != nil {
		t.Fatal(err)
	}
	want(true, "") // this resumes it
	all, _, err := kept.List(t.Context(), byBench.Project, store.Page{Limit: 10})
	if err != nil || len(all) != 2 {
		t.Errorf("got %d snapshots, %v, want 2", len(all), err)
	}
}

// BenchmarkLifecycle measures operations on a container with a Python process, on a small
// template and on the base template, with many and with few changes. A restore and a fork are
// over when the first command has been answered.
func BenchmarkLifecycle(b *testing.B) {
	for name, rootfs := range map[string]func(testing.TB) string{"small": drivertest.Rootfs, "base": drivertest.Base} {
		for _, size := range []int{1e3, 1e7} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) { benchmarkLifecycle(b, rootfs(b), size) })
		}
	}
}

func benchmarkLifecycle(b *testing.B, rootfs string, size int) {
	k, _ := newGVisorServicesOn(b, rootfs)
	c := inhabit(b, k, container.CreateRequest{})
	c.sh(fmt.Sprintf("%s\nhead -c %d /dev/urandom >noise", counting, size))
	p := byBench.Project
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	took := map[string][]time.Duration{}
	timed := func(what string, do func() error) {
		b.Helper()
		began := time.Now()
		check(do())
		took[what] = append(took[what], time.Since(began))
	}
	for b.Loop() {
		timed("pause", func() error { _, err := k.Pause(b.Context(), p, c.id); return err })
		timed("resume", func() error { _, err := k.Resume(b.Context(), p, c.id); return err })
		c.sh("true")
		for kind, memory := range map[string]bool{"": false, "-memory": true} {
			var s *berth.Snapshot
			timed("snapshot"+kind, func() (err error) {
				s, err = k.Snapshots().Take(b.Context(), p, c.id, container.SnapshotRequest{Memory: memory})
				return err
			})
			start := func(what string, make func() (*berth.Container, error)) {
				var next inhabited
				timed(what, func() error {
					made, err := make()
					check(err)
					next = inhabited{b, k, made.ID}
					_, err = next.try(b.Context(), "true")
					return err
				})
				check(k.Delete(b.Context(), p, next.id))
			}
			start("restore"+kind, func() (*berth.Container, error) {
				return k.Create(b.Context(), byBench,
					container.CreateRequest{Source: berth.ContainerSource{SnapshotID: s.ID}})
			})
			start("fork"+kind, func() (*berth.Container, error) {
				return k.Fork(b.Context(), byBench, c.id,
					container.ForkRequest{SnapshotRequest: container.SnapshotRequest{Memory: memory}})
			})
		}
	}
	for what, times := range took {
		b.ReportMetric(median(times), what+"-p50-ms")
	}
}

func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[(len(took)-1)/2].Microseconds()) / 1000
}

// gVisor cannot save a sandbox in which root has bound a socket on the host. Then no snapshot
// is left, and the caller gets an error.
func TestMemoryHostile(t *testing.T) {
	k, kept := newGVisorServices(t, 0)
	c := inhabit(t, k, container.CreateRequest{})
	c.sh(`sudo setsid python3 -c 'import socket, time
s = socket.socket(socket.AF_UNIX); s.bind("/.berth/run/x"); s.listen(); open("/mnt/data/bound", "w"); time.sleep(600)' >/dev/null 2>&1 </dev/null &
until test -e bound; do sleep .01; done`)
	_, err := k.Snapshots().Take(t.Context(), byBench.Project, c.id, container.SnapshotRequest{Memory: true})
	if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeUnavailable &&
		e.Wire != "container_expired" || strings.Contains(e.Message, "runsc") {
		t.Errorf("got %v, want the error of a failed save or of an ended container", err)
	}
	if out, err := c.try(t.Context(), "echo on"); out != "on\n" && berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("got %q, %v, want output, or the end of the container", out, err)
	}
	if all, _, err := kept.List(t.Context(), byBench.Project, store.Page{Limit: 10}); err != nil || len(all) > 0 {
		t.Errorf("got %d snapshots, %v", len(all), err)
	}
}

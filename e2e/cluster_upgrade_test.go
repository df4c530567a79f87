package e2e

import (
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/longtest"
)

// formerClusterCommit is the release that TestClusterUpgrade starts from, as long as no version has a tag:
// the last commit whose PostgreSQL database has schema 7.
const formerClusterCommit = "5909d783eddb2da9a5806b51429bbe8d874110a8"

// TestClusterUpgrade replaces three servers of the former release by this one, one after the other, under
// load and with live sandboxes. Every response ends, each command runs once, and every stream is complete.
func TestClusterUpgrade(t *testing.T) {
	longtest.Skip(t)
	current, previous := binary(t), former(t, formerClusterCommit)
	t.Setenv("BERTH_GUEST", "") // each server uses the guest and the gVisor that are part of it
	t.Setenv("BERTH_RUNSC", "")
	t.Setenv("BERTH_BIN", previous)
	f := newFleetOf(t, "gvisor", "5m")
	ctx := within(t, 20*time.Minute)
	version := func(s *server) string {
		var v struct{ Version, Commit string }
		if err := patiently(ctx, "GET", s.url+"/version", "", nil, &v); err != nil {
			t.Fatal(err)
		}
		return v.Version + " " + v.Commit
	}
	before := version(f.servers[0])

	// On each server: a container with a process, and a response in the middle of a command.
	type live struct{ container, busy, response string }
	var lives []live
	for _, s := range f.servers {
		var l live
		var created struct{ ID string }
		if _, err := call(ctx, "POST", s.url+"/v1/containers", "", map[string]any{"name": "live"},
			&created); err != nil {
			t.Fatal(err)
		}
		l.container = created.ID
		f.run(ctx, s, l.container,
			"echo mine >/mnt/data/file; setsid sh -c 'while :; do date >/tmp/beat; sleep 0.1; done' >/dev/null 2>&1 & echo $! >/mnt/data/pid", "")
		var r memberAnswer
		if _, err := call(ctx, "POST", s.url+"/v1/responses", "",
			task("echo begun >>/mnt/data/counter; until [ -e /mnt/data/go ]; do sleep 0.05; done; cat /mnt/data/counter",
				"cat /mnt/data/counter"), &r); err != nil {
			t.Fatal(err)
		}
		l.busy, l.response = r.container(), r.ID
		s.waitUntil("the command has begun", func() bool {
			var out struct{ Stdout string }
			_, err := call(ctx, "POST", s.url+"/v1/containers/"+l.busy+"/exec", "",
				map[string]any{"command": "cat /mnt/data/counter"}, &out)
			return err == nil && out.Stdout == "begun\n"
		})
		lives = append(lives, l)
	}

	// The upgrade, under load.
	var done atomic.Bool
	var jobs atomic.Int64
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		for from := 0; !done.Load() && ctx.Err() == nil; from += 5 {
			<-f.load(ctx, from, 5, 3, func(i int, j job) {
				jobs.Add(1)
				if err := f.check(ctx, i, j); err != nil {
					t.Errorf("job %d: %v", i, err)
				}
			})
		}
	}()
	f.servers[0].waitUntil("there is load", func() bool { return jobs.Load() > 0 })
	t.Setenv("BERTH_BIN", current)
	for _, s := range f.servers {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("a former server did not stop in order: %v", err)
		}
		s.start()
		s.waitUntil("the new server is ready", func() bool {
			status, _ := call(ctx, "GET", s.url+"/readyz", "", nil, nil)
			return status == http.StatusOK
		})
		at := jobs.Load()
		s.waitUntil("responses end beside it", func() bool { return jobs.Load() > at+1 })
	}
	done.Store(true)
	receive(t, loaded, "the load ends")
	t.Logf("%d jobs during the upgrade", jobs.Load())

	for i, s := range f.servers {
		if after := version(s); after == before {
			t.Errorf("server %d still is %s", i, after)
		}
		l := lives[i]
		f.run(ctx, f.servers[(i+1)%3], l.container,
			"kill -0 $(cat /mnt/data/pid) && rm /tmp/beat && until [ -e /tmp/beat ]; do sleep 0.05; done; cat /mnt/data/file",
			"mine\n")
		f.run(ctx, f.servers[(i+2)%3], l.busy, "touch /mnt/data/go", "")
		if last, err := follow(ctx, f.url, l.response, nil); err != nil || last != "response.completed" {
			t.Errorf("the response of server %d: last event %q, %v", i, last, err)
		}
		var r memberAnswer
		if err := patiently(ctx, "GET", f.url+"/v1/responses/"+l.response, "", nil, &r); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(jsonText(r), `begun\n`); got != 2 {
			t.Errorf("the commands of server %d printed %s", i, jsonText(r))
		}
	}
	f.verify()

	// The former release refuses the database.
	s := f.servers[2]
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	out, err := exec.Command(previous, slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--state", s.state},
		s.args)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "written by a later version of Berth") {
		t.Errorf("the former server on the newer database: %v: %s", err, out)
	}
	s.start()
}

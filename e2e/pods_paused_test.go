package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/kubetest"
)

// TestPodsPaused stops the process of the server that has a Pod, in the middle of a command, until
// another one has taken the Pod over. When it continues, its command breaks off. Nothing that it
// then writes is stored: the response has the whole output of a command that ran once.
func TestPodsPaused(t *testing.T) {
	c := kubetest.Start(t)
	f := newPodFleet(t, c, kubetest.Namespace, 2, 0)
	ctx := within(t, 5*time.Minute)
	a, b := f.servers[0], f.servers[1]
	for round := range 3 {
		var r memberAnswer
		if _, err := call(ctx, "POST", a.url+"/v1/responses", "",
			task("echo x >> count; while [ ! -e go ]; do id >/dev/null; done; cat count"), &r); err != nil {
			t.Fatal(err)
		}
		container := r.container()
		sh := func(s *server, script, want string) {
			t.Helper()
			s.waitUntil("the container answers "+want, func() bool {
				var ran struct{ Stdout string }
				few, cancel := context.WithTimeout(ctx, 2*time.Second) // a stopped server does not answer
				defer cancel()
				_, err := call(few, "POST", s.url+"/v1/containers/"+container+"/exec", "",
					map[string]any{"command": script}, &ran)
				return err == nil && ran.Stdout == want
			})
		}
		sh(a, "cat count", "x\n")
		first, moves, err := f.has(ctx, a.url, container)
		if err != nil || f.serverOf(first) != a || moves != 0 {
			t.Fatalf("the container is on %s and moved %d times, %v; want the server that created it", first, moves,
				err)
		}
		if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		b.waitUntil("another server has the container", func() bool {
			few, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			now, _, err := f.has(few, b.url, container)
			return err == nil && now != first
		})
		if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		sh(b, "echo >go; cat count", "x\n")
		for i, s := range f.servers {
			if last, err := follow(ctx, s.url, r.ID, nil); err != nil || last != "response.completed" {
				t.Errorf("round %d, server %d: last event %q, %v", round, i, last, err)
			}
			var done memberAnswer
			if err := patiently(ctx, "GET", s.url+"/v1/responses/"+r.ID, "", nil, &done); err != nil {
				t.Fatal(err)
			}
			if text := jsonText(done); !strings.Contains(text, `"stdout":"x\n"`) || strings.Contains(text,
				"interrupted") || strings.Contains(text, "cancelled") {
				t.Errorf("round %d, server %d: the response is %s", round, i, text)
			}
		}
		sh(a, "cat count", "x\n")
		if _, err := call(ctx, "DELETE", a.url+"/v1/containers/"+container, "", nil, nil); err != nil {
			t.Error(err)
		}
	}
	f.verify()
}

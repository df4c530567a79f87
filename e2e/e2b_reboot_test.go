package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestE2BPauseFilesOnly pauses a sandbox without its memory. Its files, its variables and its id survive, its processes
// do not, and the start command of its template runs anew.
func TestE2BPauseFilesOnly(t *testing.T) {
	s := newServer(t)
	build := s.e2bTemplate("web", map[string]any{"fromTemplate": "base", "readyCmd": "test -s /home/user/starts",
		"startCmd": "echo started | tee -a /home/user/starts; exec sleep 100000"})
	if build.Status != "ready" {
		t.Fatalf("got %+v", build)
	}
	if !strings.Contains(strings.Join(build.Logs, "\n"), "[start] [stdout]: started") {
		t.Errorf("the log lacks the output of the start command: %q", build.Logs)
	}
	var sandbox e2bSandbox
	if got := s.e2bCall("POST", "/v2/sandboxes", map[string]any{"templateID": "web", "timeout": 600,
		"envVars": map[string]string{"COLOUR": "blue"}}, &sandbox); got != http.StatusCreated {
		t.Fatalf("got %d", got)
	}
	run := func(command string) string {
		t.Helper()
		out, _, err := s.berth("exec", "cntr_"+sandbox.SandboxID, "sh", "-c", command)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return strings.TrimSpace(out)
	}
	run("echo kept > /home/user/note; (setsid tail -f /dev/null >/dev/null 2>&1 &)")
	const state = `echo $(cat /home/user/note) $COLOUR $(grep -c started /home/user/starts) ` +
		`$(pidof sleep | wc -w) $(pidof tail | wc -w)`
	const boot = "cat /proc/sys/kernel/random/boot_id"
	if got := run(state); got != "kept blue 1 1 1" {
		t.Fatalf("before: got %q", got)
	}
	before := run(boot)
	path := "/sandboxes/" + sandbox.SandboxID
	if got := s.e2bCall("POST", path+"/pause", map[string]any{"memory": false}, nil); got != http.StatusNoContent {
		t.Fatalf("pause: got %d", got)
	}
	var again e2bSandbox
	if got := s.e2bCall("POST", path+"/connect", map[string]any{"timeout": 600}, &again); got != http.StatusCreated ||
		again.SandboxID != sandbox.SandboxID {
		t.Fatalf("connect: got %d %+v", got, again)
	}
	s.waitUntil("the start command runs anew", func() bool { return run(state) == "kept blue 2 1 0" })
	if got := run(boot); got == before {
		t.Error("the boot id is the same")
	}
}

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/longtest"
)

// e2bCall sends a request of E2B's API, and decodes the answer.
func (s *server) e2bCall(method, path string, body, answer any) (status int) {
	s.t.Helper()
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-API-Key", "e2b_0000000000000000000000000000000000000000")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		s.t.Logf("%s %s: %s %s", method, path, resp.Status, text)
	} else if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			s.t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return resp.StatusCode
}

// An e2bBuild is the state of a build of a template.
type e2bBuild struct {
	Status string   `json:"status"`
	Logs   []string `json:"logs"`
	Reason struct {
		Message string `json:"message"`
	} `json:"reason"`
}

// e2bBuild starts a build with one RUN step, and returns the path of its status.
func (s *server) e2bBuild(name, command string) (template, status string) {
	s.t.Helper()
	var made struct{ TemplateID, BuildID string }
	if got := s.e2bCall("POST", "/v3/templates", map[string]any{"name": name}, &made); got != http.StatusAccepted {
		s.t.Fatalf("got %d", got)
	}
	build := map[string]any{"fromTemplate": "base",
		"steps": []any{map[string]any{"type": "RUN", "args": []string{command}}}}
	if got := s.e2bCall("POST", "/v2/templates/"+made.TemplateID+"/builds/"+made.BuildID, build,
		nil); got != http.StatusAccepted {
		s.t.Fatalf("got %d", got)
	}
	return made.TemplateID, "/templates/" + made.TemplateID + "/builds/" + made.BuildID + "/status"
}

// buildEnds returns how a build ended.
func (s *server) buildEnds(status string) (b e2bBuild) {
	s.t.Helper()
	s.waitUntil("the build ends", func() bool {
		s.e2bCall("GET", status, nil, &b)
		return b.Status != "building"
	})
	return b
}

// TestE2BBuildKilled kills the server while it builds templates in real sandboxes. After the next start the builds have
// failed, with no container left, and others run.
func TestE2BBuildKilled(t *testing.T) {
	s := newServerWith(t, "e2b: {builds: 2}\n")
	_, running := s.e2bBuild("long", "echo it runs; sleep 100000")
	s.waitUntil("the step runs", func() bool {
		var b e2bBuild
		s.e2bCall("GET", running, nil, &b)
		return strings.Contains(strings.Join(b.Logs, "\n"), "it runs")
	})
	_, waiting := s.e2bBuild("waits", "true")
	if out, _, err := s.berth("ps"); err != nil || !strings.Contains(out, "e2b-build") {
		t.Fatalf("%v: %s", err, out)
	}
	s.kill()
	s.start()
	for _, path := range []string{running, waiting} {
		var b e2bBuild
		if s.e2bCall("GET", path, nil, &b); b.Status != "error" || !strings.Contains(b.Reason.Message,
			"The server stopped") {
			t.Errorf("after the start: got %+v", b)
		}
	}
	s.waitUntil("the container is deleted", func() bool {
		out, _, err := s.berth("ps", "--all")
		return err == nil && !strings.Contains(out, "e2b-build")
	})
	if _, status := s.e2bBuild("next", "true"); s.buildEnds(status).Status != "ready" {
		t.Error("the next build failed")
	}
}

// TestE2BBuildLimit lets builds in real sandboxes reach their limit, and cancels others by deleting their templates.
func TestE2BBuildLimit(t *testing.T) {
	s := newServerWith(t, "e2b: {builds: 2, build_time: 20s}\n")
	began := time.Now()
	_, slow := s.e2bBuild("slow", "sleep 100000")
	template, deleted := s.e2bBuild("deleted", "sleep 100000") // waits: one project has one of two
	if got := s.e2bCall("DELETE", "/templates/"+template, nil, nil); got != http.StatusNoContent {
		t.Errorf("delete: got %d", got)
	}
	if got := s.e2bCall("GET", deleted, nil, nil); got != http.StatusNotFound {
		t.Errorf("its status: got %d", got)
	}
	if b := s.buildEnds(slow); b.Status != "error" ||
		b.Reason.Message != "The build took longer than 20s, the limit of this server." {
		t.Errorf("after %s: got %+v", time.Since(began), b)
	}
	if out, _, err := s.berth("ps", "--all"); err != nil || strings.Contains(out, "e2b-build") {
		t.Errorf("%v: %s", err, out)
	}
}

// e2bTemplate builds a template, and returns how the build ended.
func (s *server) e2bTemplate(name string, request map[string]any) e2bBuild {
	s.t.Helper()
	var made struct{ TemplateID, BuildID string }
	if got := s.e2bCall("POST", "/v3/templates", map[string]any{"name": name}, &made); got != http.StatusAccepted {
		s.t.Fatalf("got %d", got)
	}
	path := "/templates/" + made.TemplateID + "/builds/" + made.BuildID
	if got := s.e2bCall("POST", "/v2"+path, request, nil); got != http.StatusAccepted {
		s.t.Fatalf("got %d", got)
	}
	return s.buildEnds(path + "/status")
}

// TestE2BBuildFromStarted builds templates from one whose start command runs. Its steps see the files of the template,
// and none of its processes. A template without a start command of its own runs the inherited one, after its steps.
func TestE2BBuildFromStarted(t *testing.T) {
	s := newServer(t)
	run := func(args ...string) []any {
		steps := []any{}
		for _, arg := range args {
			steps = append(steps, map[string]any{"type": "RUN", "args": []string{arg}})
		}
		return steps
	}
	ready := "test -s /home/user/started"
	for _, build := range []struct {
		name    string
		request map[string]any
		want    string // what the start command has read, and the name of the process that it became
	}{
		{"parent", map[string]any{"fromTemplate": "base", "steps": run("echo parent > /home/user/config"),
			"startCmd": "cat /home/user/config > /home/user/started; exec sleep 100000", "readyCmd": ready},
			"parent sleep"},
		{"child", map[string]any{"fromTemplate": "parent", "steps": append([]any{
			map[string]any{"type": "USER", "args": []string{"root"}}}, run("test parent = $(cat /home/user/started)",
			"! pidof sleep", "rm /home/user/started; echo child > /home/user/config")...)}, "child sleep"},
		{"grandchild", map[string]any{"fromTemplate": "child", "steps": run("rm /home/user/started"),
			"startCmd": "echo own > /home/user/started; exec tail -f /dev/null", "readyCmd": ready}, "own tail"},
	} {
		if b := s.e2bTemplate(build.name, build.request); b.Status != "ready" {
			t.Fatalf("%s: got %+v", build.name, b)
		}
		var sandbox e2bSandbox
		if got := s.e2bCall("POST", "/v2/sandboxes", map[string]any{"templateID": build.name, "timeout": 600},
			&sandbox); got != http.StatusCreated {
			t.Fatalf("%s: got %d", build.name, got)
		}
		out, _, err := s.berth("exec", "cntr_"+sandbox.SandboxID, "sh", "-c",
			`echo $(cat /home/user/started; for n in sleep tail; do pidof $n >/dev/null && echo $n; done)`)
		if err != nil || strings.TrimSpace(out) != build.want {
			t.Errorf("%s: %v: got %q, want %q", build.name, err, out, build.want)
		}
	}
}

// TestE2BBuildImages builds templates from images that do not exist. Errors name the reference, and nothing of the
// server's network.
func TestE2BBuildImages(t *testing.T) {
	s := newServer(t)
	start := func(ref string) (path string, status int, text string) {
		var made struct{ TemplateID, BuildID string }
		if got := s.e2bCall("POST", "/v3/templates", map[string]any{"name": "app"}, &made); got != http.StatusAccepted {
			t.Fatalf("got %d", got)
		}
		path = "/templates/" + made.TemplateID + "/builds/" + made.BuildID
		resp, err := http.Post(s.url+"/v2"+path, "application/json", strings.NewReader(`{"fromImage":"`+ref+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return path + "/status", resp.StatusCode, string(body)
	}
	for _, ref := range []string{"file:///x", "-x", "app/-x", "--help", "../x", "/etc/passwd", "App",
		"registry.example:x/app", "a//b"} {
		if _, status, text := start(ref); status != http.StatusBadRequest || !strings.Contains(text, "'"+ref+"'") {
			t.Errorf("%s: got %d %s", ref, status, text)
		}
	}
	path, status, text := start("registry.invalid/app:1")
	if status != http.StatusAccepted {
		t.Fatalf("got %d %s", status, text)
	}
	b := s.buildEnds(path)
	if message := b.Reason.Message; b.Status != "error" || !strings.Contains(message, "'registry.invalid/app:1'") ||
		strings.Contains(message, ":53") || strings.Contains(message, "lookup") {
		t.Errorf("got %+v", b)
	}
}

// TestE2BManyTemplates makes and uses 500 small templates, from a base that needs no registry. All of them together do
// not fit into the quota of the project: those that were not used for the longest time go, and one of them is built
// again.
func TestE2BManyTemplates(t *testing.T) {
	longtest.Skip(t)
	const templates, workers = 500, 4
	s := newServerWith(t, "images: {idle: 1s}\nlimits: {default: {storage: 20m}}\n")
	build := func(i int) bool {
		name := fmt.Sprintf("task-%d", i)
		// Each has a megabyte that does not compress.
		b := s.e2bTemplate(name, map[string]any{"fromImage": "berth/base", "steps": []any{
			map[string]any{"type": "RUN", "args": []string{fmt.Sprintf(
				"head -c 1000000 /dev/urandom > ~/noise; echo %d > ~/number", i)}}}})
		if b.Status != "ready" {
			t.Errorf("template %d: %+v", i, b)
		}
		return b.Status == "ready"
	}
	use := func(i int) {
		var made struct{ SandboxID string }
		if got := s.e2bCall("POST", "/v2/sandboxes", map[string]any{"templateID": fmt.Sprintf("task-%d", i)},
			&made); got != http.StatusCreated {
			t.Errorf("sandbox %d: got %d", i, got)
			return
		}
		out, _, err := s.berth("exec", "cntr_"+made.SandboxID, "--", "cat", "/home/user/number")
		if err != nil || strings.TrimSpace(out) != strconv.Itoa(i) {
			t.Errorf("sandbox %d: %v, %q", i, err, out)
		}
		if got := s.e2bCall("DELETE", "/sandboxes/"+made.SandboxID, nil, nil); got != http.StatusNoContent {
			t.Errorf("kill sandbox %d: got %d", i, got)
		}
	}
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				if build(i) {
					use(i)
				}
			}
		})
	}
	for i := range templates {
		next <- i
	}
	close(next)
	all.Wait()
	there := func(i int) bool {
		return s.e2bCall("GET", fmt.Sprintf("/templates/aliases/task-%d", i), nil, nil) == http.StatusOK
	}
	left := 0
	for i := range templates {
		if there(i) {
			left++
		}
	}
	if left < 5 || left > 20 {
		t.Errorf("%d templates are left; the quota has room for about 18 or 19", left)
	}
	if there(0) || !there(templates-1) {
		t.Error("the first template is there, or the last one is not")
	}
	if build(0) {
		use(0)
	}
	out, _, err := s.berth("ps", "--all")
	if err != nil || strings.Contains(out, "e2b") {
		t.Errorf("containers are left: %v %s", err, out)
	}
}

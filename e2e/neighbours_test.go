package e2e

import (
	"strings"
	"testing"
)

// serve starts a web server with one page on a port of a container, and waits for it.
func (s *server) serve(t *testing.T, container, page, port string) {
	t.Helper()
	if out, errs, err := s.berth("exec", container, "sh", "-c", "mkdir -p /tmp/w && cd /tmp/w && echo "+page+
		" >index.html && (python3 -m http.server "+port+" >/dev/null 2>&1 &) && until curl -s -o /dev/null localhost:"+
		port+"; do sleep .05; done"); err != nil {
		t.Fatalf("%v: %s %s", err, out, errs)
	}
}

// curlIn returns what a container gets from a URL, or the exit code of curl.
func (s *server) curlIn(container, url string) string {
	out, _, _ := s.berth("exec", container, "sh", "-c", "curl -s -m 60 "+url+" || echo $?")
	return strings.TrimSpace(out)
}

func (s *server) make(t *testing.T, args ...string) {
	t.Helper()
	if out, errs, err := s.berth(append([]string{"create"}, args...)...); err != nil {
		t.Fatalf("%v: %s %s", err, out, errs)
	}
}

// TestNeighbours creates the containers of a group on the command line, by OpenAI's API and by E2B's, and lets them
// reach each other, also after the server was killed.
func TestNeighbours(t *testing.T) {
	s := newServer(t)
	s.make(t, "db", "--group", "task-7")
	s.make(t, "app", "--group", "task-7")
	s.make(t, "web-of-8", "--group", "task-8", "--as", "web")
	s.make(t, "alone")
	s.serve(t, "db", "rows", "5432")
	check := func(when string) {
		t.Helper()
		for _, c := range []struct{ from, url, want string }{
			{"app", "http://db:5432/", "rows"}, {"db", "http://db:5432/", "rows"}, {"app", "http://db:5433/", "7"},
			{"app", "http://web/", "6"}, {"web-of-8", "http://db:5432/", "6"}, {"alone", "http://db:5432/", "6"},
			{"app", "http://example.com/", "6"},
		} {
			if got := s.curlIn(c.from, c.url); got != c.want {
				t.Errorf("%s: %s from %s: got %q, want %q", when, c.url, c.from, got, c.want)
			}
		}
	}
	check("at first")
	var one e2bSandbox
	if got := s.e2bCall("POST", "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 600,
		"allow_internet_access": false, "metadata": map[string]string{"berth.group": "task-7"}}, &one); got != 201 {
		t.Fatalf("a sandbox of E2B: got %d", got)
	}
	if got := s.curlIn("cntr_"+one.SandboxID, "http://db:5432/"); got != "rows" {
		t.Errorf("a sandbox of E2B: got %q", got)
	}
	if _, errs, err := s.berth("create", "db2", "--group", "task-7", "--as", "db"); err == nil ||
		!strings.Contains(errs, "taken in group 'task-7'") {
		t.Errorf("a name that is taken: %v, %s", err, errs)
	}
	if _, errs, err := s.berth("create", "--group", "task-7"); err == nil || !strings.Contains(errs, "--as") {
		t.Errorf("a container without a name: %v, %s", err, errs)
	}
	s.kill()
	s.start()
	check("after the server was killed")
	out, errs, err := s.berth("audit", "log", "--state", s.state)
	if err != nil || !strings.Contains(out, "neighbour cntr_") {
		t.Errorf("the audit record: %v, %.2000s %s", err, out, errs)
	}
}

// TestClusterNeighbours lets containers on different servers reach each other.
func TestClusterNeighbours(t *testing.T) {
	f := newFleetOf(t, "gvisor", "1m")
	a, b, c := f.servers[0], f.servers[1], f.servers[2]
	a.make(t, "db", "--group", "task-7")
	b.make(t, "app", "--group", "task-7")
	c.make(t, "other", "--group", "task-8")
	a.serve(t, "db", "rows", "5432")
	for range 3 {
		if got := c.curlIn("app", "http://db:5432/"); got != "rows" {
			t.Errorf("from another server: got %q", got)
		}
	}
	if got := c.curlIn("app", "http://db:5433/"); got != "7" {
		t.Errorf("a closed port on another server: got %q", got)
	}
	if got := c.curlIn("other", "http://db:5432/"); got != "6" {
		t.Errorf("another group: got %q", got)
	}
	// A large transfer arrives whole, in both directions.
	if out, errs, err := a.berth("exec", "db", "sh", "-c", "cd /tmp/w && head -c 30000000 /dev/urandom >big && sha256sum <big"); err != nil {
		t.Fatalf("%v: %s", err, errs)
	} else if got := c.curlIn("app", "http://db:5432/big | sha256sum"); got != strings.TrimSpace(out) {
		t.Errorf("a large file: got %q, want %q", got, out)
	}
	if out, errs, err := a.berth("pause", "db"); err != nil {
		t.Fatalf("%v: %s %s", err, out, errs)
	}
	if got := c.curlIn("app", "http://db:5432/"); got != "7" {
		t.Errorf("a paused neighbour on another server: got %q", got)
	}
}

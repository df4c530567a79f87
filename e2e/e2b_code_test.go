package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// e2bSandbox is a sandbox of E2B's API.
type e2bSandbox struct {
	SandboxID       string
	EnvdAccessToken string
}

// execute runs code with the code interpreter of a sandbox, and returns the lines of the answer as they come.
func (s *server) execute(ctx context.Context, of e2bSandbox, code string) (lines *bufio.Scanner, done func(),
	err error) {
	s.t.Helper()
	body, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		return nil, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/execute", strings.NewReader(string(body)))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Access-Token", of.EnvdAccessToken)
	r.Header.Set("E2b-Sandbox-Id", of.SandboxID)
	r.Header.Set("E2b-Sandbox-Port", "49999")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	return bufio.NewScanner(resp.Body), func() { resp.Body.Close() }, nil
}

// TestE2BCodeKilled kills the server while code runs in a real sandbox. The client of the code is gone, so the code is
// interrupted at the next start: the next code runs, with the variables of before, and the log of the container has
// the end of the first one.
func TestE2BCodeKilled(t *testing.T) {
	s := newServer(t)
	var sandbox e2bSandbox
	if got := s.e2bCall("POST", "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 600},
		&sandbox); got != http.StatusCreated {
		t.Fatalf("got %d", got)
	}
	ctx := within(t, 4*time.Minute)
	lines, done, err := s.execute(ctx, sandbox,
		"x = 40 + 2\nprint('it runs', flush=True)\nimport time\ntime.sleep(100000)")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for lines.Scan() && !strings.Contains(lines.Text(), "it runs") {
		if strings.Contains(lines.Text(), "KernelError") {
			t.Skip("the base template has no Jupyter kernel: run make test, which builds it again")
		}
	}
	s.kill()
	s.start()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	lines, done, err = s.execute(ctx, sandbox, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	if text := strings.Join(all, "\n"); lines.Err() != nil || !strings.Contains(text, `"text":"42"`) ||
		!strings.Contains(text, "end_of_execution") {
		t.Fatalf("the next code: %v: %s", lines.Err(), text)
	}
	s.waitUntil("the log has the end of the code", func() bool {
		resp, err := http.Get(s.url + "/v1/containers/cntr_" + sandbox.SandboxID + "/logs")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), "time.sleep") && strings.Contains(string(text),
			"KeyboardInterrupt")
	})
}

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUp starts the services of compose files of the usual kind in order, twice beside each other, and removes them. What
// fails leaves nothing.
func TestUp(t *testing.T) {
	s := newServer(t)
	write := func(text string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	file := write(`
name: ctf
services:
  default:
    image: base
    x-default: true
    init: true
    command: tail -f /dev/null
    environment: [GREETING=hello there]
    depends_on:
      victim: {condition: service_healthy}
      setup: {condition: service_completed_successfully}
  setup: {image: base, network_mode: none, command: 'sh -c "echo done >/tmp/done"'}
  victim:
    image: base
    command: ["sh", "-c", "mkdir -p /tmp/w && cd /tmp/w && echo flag >index.html && exec python3 -m http.server 80"]
    healthcheck: {test: [CMD, curl, -sf, "http://localhost:80"], interval: 100ms, retries: 600}
    ports: ["8080:80"]
`)
	for _, group := range []string{"ctf", "second"} {
		out, errs, err := s.berth("up", "-f", file, "--group", group)
		if err != nil || !strings.Contains(out, group+"-default\tcntr_") ||
			!strings.Contains(out, "berth port "+group+"-victim 8080:80") ||
			!strings.Contains(errs, "services.default.init has no effect") {
			t.Fatalf("up: %v: %s %s", err, out, errs)
		}
	}
	if got := s.curlIn("second-default", "http://victim/"); got != "flag" {
		t.Errorf("the neighbour: got %q", got)
	}
	if got := s.curlIn("ctf-setup", "http://victim/"); got != "6" {
		t.Errorf("from a service without a network: got %q", got)
	}
	out, errs, err := s.berth("exec", "ctf-default", "sh", "-c", "echo $GREETING; pgrep -a tail")
	if err != nil || !strings.Contains(out, "hello there") || !strings.Contains(out, "tail -f /dev/null") {
		t.Errorf("its command and environment: %v: %s %s", err, out, errs)
	}
	if out, errs, err := s.berth("exec", "ctf-setup", "cat", "/tmp/done"); err != nil || out != "done\n" {
		t.Errorf("a service that completes: %v: %s %s", err, out, errs)
	}
	if _, errs, err := s.berth("up", "-f", file); err == nil || !strings.Contains(errs, "berth down") {
		t.Errorf("up twice: %v: %s", err, errs)
	}
	if out, _, err := s.berth("ps"); err != nil || strings.Count(out, "ctf-") != 3 {
		t.Errorf("after up twice: %v: %s", err, out)
	}
	if _, errs, err := s.berth("down", "-f", file); err != nil {
		t.Errorf("down: %v: %s", err, errs)
	}
	for text, want := range map[string]string{
		"services: {a: {image: base, privileged: true}}":           "services.a.privileged",
		"name: x\nservices: {a: {image: none-such}}":               "service a",
		"name: x\nservices: {a: {image: base, command: /no/such}}": "its command failed: /no/such: not found",
		"name: x\nservices: {b: {image: base}, c: {image: base, " +
			"depends_on: [b], command: sleep 9, healthcheck: {test: 'echo why; false', interval: 50ms, retries: 2}}}": "healthy in 100ms: why",
	} {
		if _, errs, err := s.berth("up", "-f", write(text)); err == nil || !strings.Contains(errs, want) {
			t.Errorf("%s: %v: %s", text, err, errs)
		}
	}
	if out, _, err := s.berth("ps"); err != nil || strings.Contains(out, "ctf-") || strings.Contains(out, "x-") ||
		!strings.Contains(out, "second-default") {
		t.Errorf("at the end: %v: %s", err, out)
	}
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

// TestPreviewHost shows a server in a gVisor sandbox under a host of its own: to
// programs, and to Chromium, which goes there by the link.
func TestPreviewHost(t *testing.T) {
	s := newServerWith(t, "preview: {domain: localhost}\n")
	id := s.newContainer("served.py", "host.html")
	if out, errs, err := s.berth("exec", id, "--", "sh", "-c",
		"echo hello > data.txt; nohup python3 served.py >served.log 2>&1 &"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	base := s.url + "/v1/containers/" + id + "/ports/8000/"
	s.waitUntil("the sandbox serves", func() bool { return fetch(t, base+"data.txt") == "hello\n" })
	out, errs, err := s.berth("port", "--link", id, "8000", "8001")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	lines := strings.Fields(out)
	page, err := url.Parse(lines[0])
	if err != nil || len(lines) != 2 || !strings.HasSuffix(page.Hostname(), ".localhost") {
		t.Fatalf("got %q, want two links to hosts below localhost", out)
	}
	socket, err := url.Parse(lines[1])
	if err != nil {
		t.Fatal(err)
	}

	conn, _, err := websocket.Dial(t.Context(), s.url+"/?"+socket.RawQuery, &websocket.DialOptions{Host: socket.Host,
		HTTPHeader: http.Header{"Origin": {"http://" + socket.Host}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("ahoy")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.Read(t.Context()); string(got) != "ahoy" || err != nil {
		t.Errorf("got %q, %v, want ahoy", got, err)
	}

	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: how browsers treat the host of a port is not tested")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	page.Path = "/host.html"
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(),
		"--virtual-time-budget=10000", "--dump-dom", page.String())
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	dom, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var told map[string]string
	if m := toldPattern.FindSubmatch(dom); m == nil || json.Unmarshal([]byte(html.UnescapeString(string(m[1]))),
		&told) != nil {
		t.Fatalf("the page reported nothing:\n%s", dom)
	}
	// The page calls the API of its own server; the permission is
	// not among the cookies that it sees.
	want := map[string]string{"origin": "http://" + page.Host, "own file": "hello", "own post": "200", "the API": "404",
		"cookies": "", "storage": "kept", "query": ""}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what the page could do (-want +got):\n%s", diff)
	}
	if bytes.Contains(dom, []byte(page.Query().Get("berth_preview"))) || strings.Contains(s.log.String(),
		page.Query().Get("berth_preview")) {
		t.Error("the token is in the page or in the log")
	}
}

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/longtest"
)

// files is how many files the server under attack may have open.
const files = 600

// newKeyServer starts a server that asks for a key, and which may have few files open.
func newKeyServer(t *testing.T, config string) *server {
	t.Helper()
	s := newServerWith(t, config)
	out, errs, err := s.berth("key", "create", "--state", s.state)
	if err != nil {
		t.Fatalf("key create: %v: %s", err, errs)
	}
	s.kill()
	s.key = strings.TrimSpace(out[strings.LastIndex(out, "sk-"):])
	s.wrap = []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", files, files)}
	s.start()
	return s
}

// TestDescriptorsRunOut takes all descriptors of a server with running containers: first
// the limit is taken away under it, then strangers open as many connections as they can,
// with half requests, none, or one after the other. No container ends by it, clients with
// a key are served during it, a stream continues, and healthz does not say that all is
// well when nothing can be opened.
func TestDescriptorsRunOut(t *testing.T) {
	s := newKeyServer(t, "")
	c := s.client(option.WithMaxRetries(5))
	var ids []string
	for i := range 3 {
		made, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: fmt.Sprint("c", i)})
		if err != nil {
			t.Fatal(err)
		}
		s.run(made.ID, "echo precious >/mnt/data/file")
		ids = append(ids, made.ID)
	}
	stream := c.Responses.NewStreaming(t.Context(),
		shellTask(fence("echo begun; until [ -e go ]; do sleep 0.05; done; echo went")))
	defer stream.Close()
	var busy string
	for stream.Next() {
		ev := stream.Current()
		if ev.Type == "response.created" {
			busy = ev.Response.Tools[0].AsShell().Environment.ContainerID
		}
		if ev.Type == "response.shell_call_output_content.delta" {
			break
		}
	}

	s.withoutDescriptors(ids)
	s.hoard(func() {
		for range 3 {
			for _, id := range ids {
				if got := s.run(id, "cat /mnt/data/file"); got != "precious\n" {
					t.Errorf("during the attack %s has %q", id, got)
				}
			}
		}
		if _, err := c.Containers.Files.New(t.Context(), busy,
			openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "go", "text/plain")}); err != nil {
			t.Errorf("an upload during the attack: %v", err)
		}
		var final string
		for stream.Next() {
			final = stream.Current().Type
		}
		if err := stream.Err(); err != nil || final != "response.completed" {
			t.Errorf("a stream during the attack ended with %q, %v", final, err)
		}
	})
	for _, id := range ids {
		if got := s.run(id, "cat /mnt/data/file"); got != "precious\n" {
			t.Errorf("after the attack %s has %q", id, got)
		}
		got, err := c.Containers.Get(t.Context(), id)
		if err != nil || got.Status != "running" {
			t.Errorf("after the attack: got %+v, %v, want that it runs", got, err)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "connection limit reached") ||
		strings.Contains(log, "container ended") {
		t.Errorf("the log does not tell of the connections, or tells of an end")
	}
}

// run runs a command in a container and returns what it printed. As a client does, it
// tries again when it is refused.
func (s *server) run(id, script string) (out string) {
	s.t.Helper()
	var errs string
	var err error
	for range 20 {
		if out, errs, err = s.berth("exec", id, "--", "sh", "-c", script); err == nil {
			return out
		}
		if strings.Contains(errs, "expired") {
			break
		}
	}
	s.t.Fatalf("%s: %v: %s%s", script, err, out, errs)
	return ""
}

// withoutDescriptors takes the limit of open files away under the server, and asks about
// containers over a connection that is there.
func (s *server) withoutDescriptors(ids []string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func(path string) (int, string) {
		s.t.Helper()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, s.key)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			s.t.Fatalf("%s: %v", path, err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if status, body := ask("/v1/containers"); status != http.StatusOK {
		s.t.Fatalf("got %d %s", status, body)
	}
	var was unix.Rlimit
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 8, Max: files}, &was); err != nil {
		s.t.Fatal(err)
	}
	if status, body := ask("/healthz"); status != http.StatusServiceUnavailable {
		s.t.Errorf("healthz without descriptors: got %d %s", status, body)
	}
	for _, id := range ids {
		// Stats have the driver asked, as the sweeper does every ten seconds.
		ask("/v1/containers/" + id + "/stats")
		ask("/v1/containers/" + id + "/archive?path=/mnt/data/file")
		if status, body := ask("/v1/containers/" + id); status != http.StatusOK || !strings.Contains(body,
			`"status":"running"`) {
			s.t.Errorf("a container without descriptors: got %d %s", status, body)
		}
	}
	s.untilSwept(ids)
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		s.t.Fatal(err)
	}
	if status, body := ask("/healthz"); status != http.StatusOK {
		s.t.Errorf("healthz with descriptors: got %d %s", status, body)
	}
}

// untilSwept waits until the sweeper has asked about containers and learned nothing, if
// there is time for that.
func (s *server) untilSwept(ids []string) {
	s.t.Helper()
	if !longtest.Enabled() {
		return
	}
	s.waitUntil("the sweeper has asked about all containers", func() bool {
		n := 0
		for _, id := range ids {
			for line := range strings.Lines(s.log.String()) {
				if strings.Contains(line, "failed to get the state of a sandbox") && strings.Contains(line, id) {
					n++
					break
				}
			}
		}
		return n == len(ids)
	})
}

// hoard opens connections without a key from several addresses, again and again, while f
// runs.
func (s *server) hoard(f func()) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	addr := strings.TrimPrefix(s.url, "http://")
	full := make(chan struct{}, 100)
	for i := range 6 {
		go func() {
			var all []net.Conn
			defer func() {
				for _, c := range all {
					c.Close()
				}
			}()
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/2))}, Timeout: 2 * time.Second}
			for n := 0; ctx.Err() == nil; n++ {
				if c, err := d.DialContext(ctx, "tcp", addr); err == nil {
					switch i % 3 {
					case 0:
						_, _ = io.WriteString(c, "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
					case 1:
						_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
					}
					all = append(all, c)
				}
				if n == files/2 {
					full <- struct{}{}
				}
				if len(all) > files { // bounded
					all[0].Close()
					all = all[1:]
				}
			}
		}()
	}
	for range 6 {
		<-full
	}
	f()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	if err != nil || len(fds) > files*3/4 {
		s.t.Errorf("the server has %d descriptors open, %v, of %d", len(fds), err, files)
	}
	health, err := http.Get(s.url + "/healthz")
	if err != nil {
		return // refused
	}
	defer health.Body.Close()
	var said struct{ Status string }
	if err := json.NewDecoder(health.Body).Decode(&said); err == nil && said.Status == "ok" {
		if _, err := s.client(option.WithMaxRetries(10)).Containers.List(s.t.Context(),
			openai.ContainerListParams{}); err != nil {
			s.t.Errorf("healthz says ok, and a list of containers: %v", err)
		}
	}
}

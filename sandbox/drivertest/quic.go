package drivertest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/quic"

	"github.com/berth-run/berth/sandbox"
)

// quicAddr is the address to which the policy of quic allows datagrams.
const quicAddr = "198.51.100.7"

// quicEnv names the client of quicProgram, for a test program that cannot build it.
const quicEnv = "BERTH_TEST_QUIC"

// quicProgram returns the path of a QUIC client.
func quicProgram(t *testing.T) string {
	return program(t, "berth-test-quic", quicEnv, "sandbox/drivertest/testdata/quic")
}

// quic makes real QUIC connections: to an address that a rule allows for datagrams, to others,
// and by the names of hosts that are allowed for TCP, with and without a secret.
func (s networks) quic(t *testing.T) {
	if s.features.Network || !s.features.Routes {
		t.Skip("skipped: sandboxes of this driver have no route for addresses")
	}
	server := quicServer(t)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	o := newOutsideOf(t, secure, nil, "example.com", "api.example.com", quicAddr+":443/udp", "93.184.216.0/24")
	for i := range o.gate.Policy.Rules {
		if o.gate.Policy.Rules[i].UDP {
			o.gate.Policy.Rules[i].Private = true // permitted by the operator: an example address is not public
		}
	}
	var datagrams []netip.AddrPort
	o.gate.Dial = func(ctx context.Context, network string, a netip.AddrPort) (net.Conn, error) {
		if network != "udp" {
			return nil, fmt.Errorf("%s %s was dialed", network, a)
		}
		o.mu.Lock()
		datagrams = append(datagrams, a)
		o.mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, server)
	}
	b := Start(t, s.open(t), sandbox.Spec{ID: "quic", Template: s.Template})
	o.connect(t, b)
	client, err := os.Open(quicProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := b.Client.WriteFile(t.Context(), "/mnt/data", "quic", "", client); err != nil {
		t.Fatal(err)
	}
	b.Must("chmod +x quic")
	// A sandbox that may reach an address may use any name there.
	for _, name := range []string{"example.com", "another.test"} {
		if r := b.Sh("./quic " + quicAddr + ":443 " + name); r.Stdout != name+": hello\n\n" {
			t.Errorf("%s: got %+v, want the server's answer", name, r)
		}
	}
	o.mu.Lock()
	allowed := len(datagrams)
	o.mu.Unlock()
	if allowed == 0 {
		t.Error("the server was reached past the gate")
	}
	// They run concurrently: a client gives up only after a handshake's timeout.
	script := "("
	targets := []string{
		quicAddr + ":8443", "198.51.100.8:443", "93.184.216.34:443", // for TCP only
		"example.com:443", "api.example.com:443", // likewise; the second has a secret
		"169.254.169.254:443", "10.0.0.1:443", "[2001:db8::1]:443",
	}
	for _, target := range targets {
		host, _, _ := net.SplitHostPort(target)
		script += fmt.Sprintf("./quic '%s' '%s' & ", target, host)
	}
	if r := b.ShTimeout(script+"wait)", time.Minute); strings.Count(r.Stdout, "refused: ") != len(targets) ||
		strings.Contains(r.Stdout, "hello") {
		t.Errorf("got %+v, want %d refused", r, len(targets))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range datagrams {
		if a != netip.MustParseAddrPort(quicAddr+":443") {
			t.Errorf("datagrams went to %s", a)
		}
	}
	for _, f := range o.flows {
		if len(f.Secrets) > 0 {
			t.Errorf("a secret was used: %+v", f)
		}
	}
}

// quicServer echoes a line on each stream, after the client's server name. It returns its
// address.
func quicServer(t *testing.T) string {
	own := httptest.NewUnstartedServer(nil)
	own.StartTLS()
	t.Cleanup(own.Close)
	endpoint, err := quic.Listen("udp", "127.0.0.1:0", &quic.Config{
		TLSConfig: &tls.Config{Certificates: own.TLS.Certificates, NextProtos: []string{"h3"},
			MinVersion: tls.VersionTLS13}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = endpoint.Close(ctx)
	})
	go func() {
		for {
			conn, err := endpoint.Accept(ctx)
			if err != nil {
				return
			}
			go func() {
				stream, err := conn.AcceptStream(ctx)
				if err != nil {
					return
				}
				line, _ := io.ReadAll(io.LimitReader(stream, 1<<10))
				fmt.Fprintf(stream, "%s: %s", conn.ConnectionState().ServerName, line)
				stream.CloseWrite()
			}()
		}
	}()
	return endpoint.LocalAddr().String()
}

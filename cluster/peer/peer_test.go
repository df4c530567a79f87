package peer_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/cluster/peer"
)

var (
	ours   = [32]byte{1}
	theirs = [32]byte{2}
)

// start starts a server that answers with its own name and its caller's.
func start(t *testing.T, key [32]byte, name string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := node(t, key, name, "")
	n.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, name+" called by "+peer.Caller(r.Context())+" with "+r.Proto)
	}), slog.New(slog.DiscardHandler))
	return l.Addr().String()
}

// node returns a node to which every other server has the same address.
func node(t *testing.T, key [32]byte, name, address string) *peer.Node {
	t.Helper()
	n, err := peer.New(key, name, func(_ context.Context, name string) (string, error) {
		if name == "gone" {
			return "", errors.New("no such server")
		}
		return address, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return n
}

func get(t *testing.T, rt http.RoundTripper, name string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+name+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestPeers(t *testing.T) {
	at := start(t, ours, "node_b")
	got, err := get(t, node(t, ours, "node_a", at), "node_b")
	if err != nil || got != "node_b called by node_a with HTTP/2.0" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := get(t, node(t, ours, "node_a", at), "gone"); err == nil || !strings.Contains(err.Error(),
		"no such server") {
		t.Errorf("a server without an address: got error %v", err)
	}
}

// A server accepts only clients with the cluster's key, and a client accepts only the server that
// it calls.
func TestStrangers(t *testing.T) {
	at := start(t, ours, "node_b")
	for name, rt := range map[string]http.RoundTripper{
		"another cluster's server":          node(t, theirs, "node_a", at),
		"a client without a certificate":    &http.Transport{DialTLSContext: stranger(at, nil)},
		"a client with its own certificate": &http.Transport{DialTLSContext: stranger(at, selfSigned(t))},
		"a client that speaks plain HTTP": &http.Transport{DialTLSContext: func(ctx context.Context, network,
			_ string) (net.Conn, error) {
			return net.Dial(network, at)
		}},
		"a server with an address of another": renamed{node(t, ours, "node_a", at)},
	} {
		if got, err := get(t, rt, "node_b"); err == nil && strings.Contains(got, "called by") {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if _, err := get(t, node(t, ours, "node_a", start(t, theirs, "node_b")), "node_b"); err == nil {
		t.Error("a client called another cluster's server")
	}
}

// renamed calls a server by the name of another one.
type renamed struct{ http.RoundTripper }

func (n renamed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = "node_c"
	return n.RoundTripper.RoundTrip(r)
}

// stranger connects without checking the server, with a certificate or none.
func stranger(at string, cert *tls.Certificate) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		config := &tls.Config{InsecureSkipVerify: true}
		if cert != nil {
			config.Certificates = []tls.Certificate{*cert}
		}
		d := tls.Dialer{Config: config}
		return d.DialContext(ctx, network, at)
	}
}

// selfSigned returns a certificate for node_a by an authority of the same name as the cluster's.
func selfSigned(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"node_a"},
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	c.Subject.CommonName = "Berth cluster"
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	pingEvery   = 5 * time.Second // of an HTTP/2 connection without frames, to find one whose other end is gone
	pingTimeout = 10 * time.Second
)

// An Address returns where the member with a name listens.
type Address func(ctx context.Context, name string) (address string, err error)

// A Node is one server's end of the connections among servers. It is safe for concurrent use.
type Node struct {
	identity *identity
	address  Address
	client   *http.Transport
	upgrader *http.Transport // for connections that are upgraded, which HTTP/2 does not have

	mu   sync.Mutex
	cert *tls.Certificate // the newest

	server *http.Server
	served chan struct{}
}

// New returns the node of the server with a name, in the cluster whose servers have key.
func New(key [32]byte, name string, address Address) (*Node, error) {
	id, err := newIdentity(key, name)
	if err != nil {
		return nil, err
	}
	n := &Node{identity: id, address: address}
	if _, err := n.certificate(); err != nil {
		return nil, err
	}
	first, second := &http.Protocols{}, &http.Protocols{}
	first.SetHTTP1(true)
	second.SetHTTP2(true)
	n.upgrader = &http.Transport{DialTLSContext: n.dial("http/1.1"), Protocols: first, DisableKeepAlives: true,
		DisableCompression: true}
	n.client = &http.Transport{DialTLSContext: n.dial("h2"), Protocols: second, MaxIdleConnsPerHost: 16,
		IdleConnTimeout:    90 * time.Second,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingTimeout},
		DisableCompression: true}
	return n, nil
}

// certificate returns a certificate that is valid for at least half of validity.
func (n *Node) certificate() (*tls.Certificate, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.cert != nil && n.cert.Leaf.NotAfter.Sub(now) > validity/2 {
		return n.cert, nil
	}
	cert, err := n.identity.issue(now)
	if err == nil {
		n.cert = cert
	}
	return cert, err
}

// dial returns a function that connects to the member whose name is the host of the address.
func (n *Node) dial(protocol string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return n.connect(ctx, network, address, protocol)
	}
}

func (n *Node) connect(ctx context.Context, network, address, protocol string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	at, err := n.address(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("find server %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: n.identity.pool, ServerName: name,
		NextProtos:           []string{protocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return n.certificate() }}}
	conn, err := d.DialContext(ctx, network, at)
	if err != nil {
		return nil, fmt.Errorf("connect to server %s at %s: %w", name, at, err)
	}
	return conn, nil
}

// RoundTrip sends a request to the member whose name is the host of its URL.
func (n *Node) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := n.client
	if r.Header.Get("Upgrade") != "" {
		transport = n.upgrader
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("call another server: %w", err)
	}
	return resp, nil
}

// Serve serves requests of other servers on l until Close. The handler's request has the name of
// the calling server, see Caller.
func (n *Node) Serve(l net.Listener, h http.Handler, log *slog.Logger) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: n.identity.pool, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return n.certificate() }}
	n.server = &http.Server{TLSConfig: config, ReadHeaderTimeout: dialTimeout, IdleTimeout: 2 * time.Minute,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 10_000, SendPingTimeout: pingEvery, PingTimeout: pingTimeout},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, err := verify(*r.TLS)
			if err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, name)))
		})}
	n.served = make(chan struct{})
	go func() {
		defer close(n.served)
		if err := n.server.ServeTLS(l, "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("stopped listening for other servers", "err", err)
		}
	}()
}

// Close ends all connections to and from other servers.
func (n *Node) Close() error {
	n.client.CloseIdleConnections()
	n.upgrader.CloseIdleConnections()
	if n.server == nil {
		return nil
	}
	err := n.server.Close()
	<-n.served
	if err != nil {
		return fmt.Errorf("stop serving other servers: %w", err)
	}
	return nil
}

type callerKey struct{}

// Caller returns the name of the server that sent a request, or "" if the request did not come
// from a server of the cluster.
func Caller(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}

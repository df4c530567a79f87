// Package proxy leads connections out of a network through its proxies: HTTP CONNECT and SOCKS5, each also over TLS.
//
// A proxy gets the names of hosts, so that this machine asks no resolver for them. If a proxy cannot be reached or
// refuses a host, the connection fails. It is never made without the proxy.
package proxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	socks "golang.org/x/net/proxy"
)

const (
	dialTime   = 10 * time.Second // to reach a proxy
	answerTime = 30 * time.Second // until a proxy has reached a host
	maxAnswer  = 16 << 10         // bytes of the header with which a proxy answers CONNECT
)

// A Dialer connects to an address, a host and a port.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// A Server is a proxy. It is safe for concurrent use.
type Server struct {
	socks   bool
	address string        // host:port
	user    *url.Userinfo // nil if the proxy wants no credentials
	tls     *tls.Config   // nil if the connection to the proxy is not encrypted
	forward Dialer        // to the proxy
}

// schemes are those of a proxy's URL, with their default ports.
var schemes = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080", "socks5s": "1080"}

// ParseURL parses the URL of a proxy. Its errors do not contain the URL, which may hold a password.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || schemes[u.Scheme] == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("it is not the address of a proxy, such as http://proxy.example.com:3128, https://…, " +
			"socks5://… or socks5s://… (SOCKS5 over TLS)")
	}
	return u, nil
}

// NewServer returns the proxy at a URL of ParseURL. forward connects to the proxy; nil means without another proxy.
// conf verifies a proxy with TLS; nil means the system's authorities.
func NewServer(u *url.URL, conf *tls.Config, forward Dialer) *Server {
	s := &Server{socks: strings.HasPrefix(u.Scheme, "socks"), user: u.User, forward: forward,
		address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), schemes[u.Scheme]))}
	if s.forward == nil {
		s.forward = (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext
	}
	if slices.Contains([]string{"https", "socks5s"}, u.Scheme) {
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		if conf != nil {
			s.tls = conf.Clone()
		}
		s.tls.ServerName, s.tls.NextProtos = cmp.Or(s.tls.ServerName, u.Hostname()), []string{"http/1.1"}
		if s.socks {
			s.tls.NextProtos = nil
		}
	}
	return s
}

// String returns the address of the proxy, without credentials.
func (s *Server) String() string { return s.address }

// Requests reports whether the proxy takes requests of plain HTTP, with the host in the request line. Proxies of
// companies often refuse CONNECT to port 80.
func (s *Server) Requests() bool { return !s.socks }

// URL returns the proxy's URL for http.Transport. Connect replaces the way to it.
func (s *Server) URL() *url.URL {
	u := &url.URL{Scheme: "http", Host: s.address, User: s.user}
	if s.socks {
		u.Scheme = "socks5"
	}
	return u
}

// Connect connects to the proxy itself.
func (s *Server) Connect(ctx context.Context) (net.Conn, error) {
	conn, err := s.forward(ctx, "tcp", s.address)
	if err != nil {
		return nil, fmt.Errorf("reach proxy %s: %w", s, err)
	}
	if s.tls == nil {
		return conn, nil
	}
	secure := tls.Client(conn, s.tls)
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("reach proxy %s: %w", s, err)
	}
	return secure, nil
}

// Dial connects to a host and a port through the proxy, which resolves the host.
func (s *Server) Dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := s.Connect(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	through, err := s.negotiate(ctx, conn, address)
	if !stop() && (err == nil || errors.Is(err, os.ErrDeadlineExceeded)) {
		err = fmt.Errorf("reach proxy %s: %w", s, context.Cause(ctx))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return through, nil
}

func (s *Server) negotiate(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	if s.socks {
		return conn, s.negotiateSOCKS(ctx, conn, address)
	}
	return s.negotiateHTTP(conn, address)
}

// An opened connection is given to the SOCKS client, which would dial.
type opened struct{ net.Conn }

func (o opened) Dial(string, string) (net.Conn, error) { return o.Conn, nil }

func (o opened) DialContext(context.Context, string, string) (net.Conn, error) { return o.Conn, nil }

func (s *Server) negotiateSOCKS(ctx context.Context, conn net.Conn, address string) error {
	var auth *socks.Auth
	if s.user != nil {
		password, _ := s.user.Password()
		auth = &socks.Auth{User: s.user.Username(), Password: password}
	}
	d, err := socks.SOCKS5("tcp", s.address, auth, opened{conn})
	if err != nil {
		return fmt.Errorf("prepare SOCKS5: %w", err)
	}
	if _, err := d.(socks.ContextDialer).DialContext(ctx, "tcp", address); err != nil {
		return fmt.Errorf("connect through proxy: %w", err)
	}
	return nil
}

// A Refused error is a proxy's answer that it does not connect to a host.
type Refused struct {
	Proxy  string
	Status string // such as "403 Forbidden"
}

func (r *Refused) Error() string { return fmt.Sprintf("the proxy %s answered %s", r.Proxy, r.Status) }

func (s *Server) negotiateHTTP(conn net.Conn, address string) (net.Conn, error) {
	var head strings.Builder
	fmt.Fprintf(&head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", address, address)
	for name, values := range s.header() {
		fmt.Fprintf(&head, "%s: %s\r\n", name, values[0])
	}
	head.WriteString("\r\n")
	if _, err := io.WriteString(conn, head.String()); err != nil {
		return nil, fmt.Errorf("write to proxy: %w", err)
	}
	bounded := &io.LimitedReader{R: conn, N: maxAnswer}
	in := bufio.NewReaderSize(bounded, 4<<10)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("read answer of proxy %s: %w", s, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &Refused{Proxy: s.String(), Status: statusText(resp.StatusCode)}
	}
	bounded.N = 0 // what follows is not read through the bound
	first, _ := in.Peek(in.Buffered())
	if len(first) == 0 {
		return conn, nil
	}
	return &begun{Conn: conn, first: first}, nil
}

// statusText returns a status without the proxy's own words.
func statusText(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// header returns the header with the credentials.
func (s *Server) header() http.Header {
	if s.user == nil {
		return nil
	}
	password, _ := s.user.Password()
	return http.Header{"Proxy-Authorization": {"Basic " +
		base64.StdEncoding.EncodeToString([]byte(s.user.Username()+":"+password))}}
}

// A begun connection has received data together with the proxy's answer.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// CloseWrite signals the end of data to the host.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Conn.Close()
}

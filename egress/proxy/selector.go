package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/berth-run/berth"
)

// Rules say which hosts are reached through a proxy.
type Rules struct {
	server *Server
	exempt func(*url.URL) (*url.URL, error)
}

// NewRules returns the rules of a proxy; nil means none. except are hosts that are reached without it: names, names
// with all below them (".example.com"), addresses and prefixes, each with or without a port.
func NewRules(server *Server, except []string) *Rules {
	c := httpproxy.Config{HTTPSProxy: "http://proxy.invalid", NoProxy: strings.Join(except, ",")}
	return &Rules{server: server, exempt: c.ProxyFunc()}
}

// For returns the proxy for a host and a port, or nil to connect without one. This machine's loopback and link-local
// addresses are never reached through a proxy.
func (r *Rules) For(address string) *Server {
	host, _, err := net.SplitHostPort(address)
	if r == nil || r.server == nil || err != nil || local(host) {
		return nil
	}
	if u, err := r.exempt(&url.URL{Scheme: "https", Host: address}); u == nil && err == nil {
		return nil
	}
	return r.server
}

func local(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.IsLoopback() || a.Unmap().IsLoopback() || a.IsLinkLocalUnicast())
}

// A Selector chooses the proxy of the server or of a project. It makes all transports of the server. The nil Selector
// uses no proxy, or where a function says so that of the environment.
type Selector struct {
	Server   *Rules
	Projects map[berth.ProjectID]*Rules // in place of Server
	Roots    *x509.CertPool             // with those of the proxies; nil means the system's
}

// Active reports whether the server or a project has a proxy.
func (s *Selector) Active() bool {
	if s == nil {
		return false
	}
	for _, r := range s.Projects {
		if r.server != nil {
			return true
		}
	}
	return s.Server != nil && s.Server.server != nil
}

// Rules returns the rules of a project; "" is the server. They may be nil.
func (s *Selector) Rules(p berth.ProjectID) *Rules {
	if s == nil {
		return nil
	}
	if r, ok := s.Projects[p]; ok {
		return r
	}
	return s.Server
}

// Authorities returns Roots.
func (s *Selector) Authorities() *x509.CertPool {
	if s == nil {
		return nil
	}
	return s.Roots
}

// For returns the proxy for a host and a port, for the project of ctx, or nil to connect without one.
func (s *Selector) For(ctx context.Context, address string) *Server {
	return s.Rules(berth.ProjectOf(ctx)).For(address)
}

// An Option changes a transport.
type Option func(*transportOptions)

type transportOptions struct {
	dial   Dialer
	tls    *tls.Config
	direct bool
	fixed  *Rules
	guard  func(ctx context.Context, address string) error
}

// WithDialer dials hosts that are reached without a proxy.
func WithDialer(d Dialer) Option { return func(o *transportOptions) { o.dial = d } }

// WithTLS verifies hosts.
func WithTLS(c *tls.Config) Option { return func(o *transportOptions) { o.tls = c } }

// WithRules uses these rules whatever the project.
func WithRules(r *Rules) Option { return func(o *transportOptions) { o.fixed = r } }

// WithoutEnvironment ignores the proxy of the environment if there is no other.
func WithoutEnvironment() Option { return func(o *transportOptions) { o.direct = true } }

// WithGuard refuses hosts before a proxy is asked for them.
func WithGuard(f func(ctx context.Context, address string) error) Option {
	return func(o *transportOptions) { o.guard = f }
}

// errNotProxy means that a transport asked for a connection that must not be made.
var errNotProxy = errors.New("the host must be reached through a proxy")

// Transport returns a transport whose requests leave through the proxy of their context's project. Without a proxy in
// the configuration, the environment's is used.
func (s *Selector) Transport(options ...Option) *http.Transport {
	o := transportOptions{dial: (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext}
	for _, set := range options {
		set(&o)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = o.dial
	if o.tls != nil {
		t.TLSClientConfig = o.tls.Clone()
	} else if s != nil && s.Roots != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: s.Roots, MinVersion: tls.VersionTLS12}
	}
	if o.direct {
		t.Proxy = nil
	}
	if !s.Active() && o.fixed == nil {
		return t
	}
	rules := func(ctx context.Context) *Rules {
		if o.fixed != nil {
			return o.fixed
		}
		return s.Rules(berth.ProjectOf(ctx))
	}
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		address := addressOf(r.URL)
		server := rules(r.Context()).For(address)
		if server == nil {
			return nil, nil
		}
		if o.guard != nil {
			if err := o.guard(r.Context(), address); err != nil {
				return nil, err
			}
		}
		return server.URL(), nil
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		r := rules(ctx)
		if r != nil && r.server != nil && r.server.address == address {
			return r.server.Connect(ctx)
		}
		if r.For(address) != nil {
			return nil, errNotProxy
		}
		return o.dial(ctx, network, address)
	}
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return &Refused{Proxy: proxy.Host, Status: statusText(resp.StatusCode)}
	}
	return t
}

// DialContext connects to a host and a port, through the proxy of the context's project if it has one.
func (s *Selector) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if server := s.For(ctx, address); server != nil {
		conn, err := server.Dial(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return conn, nil
	}
	return (&net.Dialer{Timeout: dialTime}).DialContext(ctx, network, address)
}

func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

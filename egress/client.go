package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/egress/proxy"
)

// ErrRefused is wrapped by errors of Client if the gate's policy does not allow the host.
var ErrRefused = errors.New("the address is not allowed")

// Client returns an HTTP client for the server's own requests. It reaches only what the gate's
// policy allows, redirects included. timeout bounds a whole request. It uses the gate's proxy, and never that of the
// environment. The client does not record its connections.
func (g *Gate) Client(timeout time.Duration) *http.Client {
	t := &http.Transport{
		DialContext:           g.Connect,
		ForceAttemptHTTP2:     true,
		ResponseHeaderTimeout: timeout,
		DisableKeepAlives:     true,
	}
	if g.Roots != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: g.Roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Timeout: timeout, Transport: plainThrough{g, t}}
}

// plainThrough sends requests of plain HTTP to a proxy as such, not through a tunnel.
type plainThrough struct {
	gate   *Gate
	direct *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (p plainThrough) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" {
		target, _ := parseTarget(net.JoinHostPort(r.URL.Hostname(), cmp.Or(r.URL.Port(), "80")))
		if via := p.gate.proxyFor(r.Context(), target); via != nil && via.Requests() {
			d := Decide(p.gate.Policy, target)
			if err := p.gate.mayAsk(d, target); !d.Allow || err != nil {
				return nil, errors.Join(ErrRefused, err)
			}
			t := p.direct.Clone()
			t.Proxy = http.ProxyURL(via.URL())
			t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return via.Connect(ctx) }
			r = r.Clone(r.Context())
			r.Host = "" // the proxy connects to the host of the URL, which was checked
			return t.RoundTrip(r)
		}
	}
	return p.direct.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.
func (p plainThrough) CloseIdleConnections() { p.direct.CloseIdleConnections() }

// Connect connects to a host and a port that the policy allows. Its error is ErrRefused for those that it does not
// allow, and for those that do not exist.
func (g *Gate) Connect(ctx context.Context, _, address string) (net.Conn, error) {
	target, ok := parseTarget(address)
	d := Decide(g.Policy, target)
	if !ok || !d.Allow {
		return nil, ErrRefused
	}
	var conn net.Conn
	var err error
	if via := g.proxyFor(ctx, target); via != nil {
		conn, err = g.reachThrough(ctx, via, d, target)
	} else {
		conn, _, err = g.reach(ctx, d, target)
	}
	_, refused := errors.AsType[refusal](err)
	if _, unknown := errors.AsType[*net.DNSError](err); refused || unknown && ctx.Err() == nil {
		return nil, errors.Join(ErrRefused, err) // alike: which names this network has is nobody's business
	}
	return conn, err
}

// proxyFor returns the proxy through which a target is reached, or nil.
func (g *Gate) proxyFor(ctx context.Context, t Target) *proxy.Server {
	if g.Proxy == nil {
		return nil
	}
	return g.Proxy(ctx, net.JoinHostPort(t.Host, strconv.Itoa(t.Port)))
}

// insideNames are the domains of names that mean something only inside of a network (RFC 6761, RFC 6762, RFC 8375 and
// ICANN's .internal).
var insideNames = []string{"localhost", "localdomain", "local", "internal", "intranet", "corp", "home", "lan",
	"private", "home.arpa"}

// mayAsk returns an error if a proxy must not be asked for a target that d allows. The addresses of a name are not
// known here, so what depends on them cannot be allowed.
func (g *Gate) mayAsk(d Decision, t Target) error {
	switch a, err := netip.ParseAddr(t.Host); {
	case t.UDP:
		return refusal("datagrams do not pass through the proxy")
	case err == nil:
		if !g.Policy.mayDial(d, t, a) || !d.Private && g.own(a) {
			return refusal("the address may not be dialled")
		}
		return nil
	case d.Private:
		return nil
	case d.Open && len(g.Policy.Denied) > 0:
		return refusal("the policy denies addresses, and the proxy does not tell to which address a name leads")
	}
	if insideName(t.Host) {
		return refusal("the name is one of a private network")
	}
	return nil
}

// PublicTarget returns an error if a proxy must not be asked for a host and a port, because it is not one of the public
// Internet: an address that is not public, or a name of a private network.
func PublicTarget(_ context.Context, address string) error {
	t, ok := parseTarget(address)
	a, err := netip.ParseAddr(t.Host)
	name, named := CanonicalName(t.Host)
	if !ok || err == nil && (!Public(a) || Own(a)) || err != nil && (!named || insideName(name)) {
		return refusal("the address is not public")
	}
	return nil
}

// insideName reports whether a name means something only inside of a network.
func insideName(name string) bool {
	return !strings.Contains(name, ".") || slices.ContainsFunc(insideNames, func(domain string) bool {
		return strings.HasSuffix(name, "."+domain)
	})
}

// reachThrough connects to a target that the decision allows through a proxy.
func (g *Gate) reachThrough(ctx context.Context, via *proxy.Server, d Decision, t Target) (net.Conn, error) {
	if err := g.mayAsk(d, t); err != nil {
		return nil, err
	}
	conn, err := via.Dial(ctx, net.JoinHostPort(t.Host, strconv.Itoa(t.Port)))
	if err != nil {
		return nil, fmt.Errorf("dial through proxy: %w", err)
	}
	return conn, nil
}

// reach dials the first address of a target that the decision allows.
func (g *Gate) reach(ctx context.Context, d Decision, t Target) (net.Conn, netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addrs, err := g.lookup(ctx, t.Host)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	allowed := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return !g.Policy.mayDial(d, t, a) || !d.Private && g.own(a)
	})
	if len(allowed) == 0 {
		return nil, netip.Addr{}, refusal("the host has no address that may be dialled")
	}
	var failed []error
	for _, a := range allowed {
		conn, err := g.dial(ctx, t.network(), netip.AddrPortFrom(a, uint16(t.Port)))
		if err == nil {
			return conn, a, nil
		}
		failed = append(failed, err)
	}
	return nil, netip.Addr{}, errors.Join(failed...)
}

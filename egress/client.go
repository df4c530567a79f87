package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// ErrRefused is wrapped by errors of Client if the gate's policy does not allow the host.
var ErrRefused = errors.New("the address is not allowed")

// Client returns an HTTP client for the server's own requests. It reaches only what the gate's
// policy allows, redirects included, and never uses a proxy. timeout bounds a whole request.
// The client does not record its connections.
func (g *Gate) Client(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				target, ok := parseTarget(address)
				d := Decide(g.Policy, target)
				if !ok || !d.Allow {
					return nil, ErrRefused
				}
				conn, _, err := g.reach(ctx, d, target)
				_, refused := errors.AsType[refusal](err)
				if _, unknown := errors.AsType[*net.DNSError](err); refused || unknown && ctx.Err() == nil {
					return nil, errors.Join(ErrRefused, err) // alike: which names this network has is nobody's business
				}
				return conn, err
			},
			ForceAttemptHTTP2:     true,
			ResponseHeaderTimeout: timeout,
			DisableKeepAlives:     true,
		},
	}
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

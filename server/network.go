package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/outbound"
)

// policyOf returns the policy for the server's own requests, or nil if nothing is allowed.
// allowed is nil for anything public.
func policyOf(allowed, private []config.EgressRule) *egress.Policy {
	p := &egress.Policy{Open: allowed == nil}
	for _, r := range rules(allowed) {
		if r.Name == "*" && len(r.Ports) == 0 {
			p.Open = true
			continue
		}
		p.Rules = append(p.Rules, r)
	}
	for _, r := range rules(private) {
		r.Private = true
		p.Rules = append(p.Rules, r)
	}
	if !p.Open && len(p.Rules) == 0 {
		return nil
	}
	return p
}

// gateOf returns the gate of the server's own requests, through the proxies.
func gateOf(policy *egress.Policy, proxies *proxy.Selector) *egress.Gate {
	g := &egress.Gate{Policy: policy}
	if proxies != nil {
		g.Proxy, g.Roots = proxies.For, proxies.Roots
	}
	return g
}

// networkOptions returns the options of the network of containers.
func networkOptions(whole *config.Config) (container.NetworkOptions, error) {
	c := whole.Containers.Network
	var out container.NetworkOptions
	if c.Allowed != nil {
		out.Allowed = rules(c.Allowed)
	}
	out.Private = rules(c.Private)
	out.Slots = egress.NewSlots(cmp.Or(c.Connections, config.DefaultEgress()))
	var err error
	if c.TrustHost == nil || *c.TrustHost {
		if out.Authorities, err = hostAuthorities(); err != nil {
			return out, err
		}
	}
	more, err := outbound.Authorities(whole)
	if err != nil {
		return out, fmt.Errorf("read authorities of proxy: %w", err)
	}
	if len(more) > 0 {
		out.Authorities = append(append(out.Authorities, '\n'), more...)
	}
	out.Proxies, err = outbound.Open(whole)
	return out, err
}

func rules(from []config.EgressRule) []egress.Rule {
	to := make([]egress.Rule, len(from))
	for i, r := range from {
		to[i] = r.Rule
	}
	return to
}

// bundles are the files in which distributions store trusted certificate authorities.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// hostAuthorities returns the certificates that this machine trusts, in PEM, or nil if it has
// none.
func hostAuthorities() ([]byte, error) {
	for _, path := range bundles {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return text, err
	}
	return nil, nil
}

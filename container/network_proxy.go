package container

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/proxy"
)

// proxyOf returns how the gate of a project's container finds its proxy, or nil if there is none.
func (ns *networks) proxyOf(p berth.ProjectID, a access) func(context.Context, string) *proxy.Server {
	rules := ns.opts.Network.Proxies.Rules(p)
	var through func(context.Context, string) *proxy.Server
	if rules != nil {
		through = func(_ context.Context, address string) *proxy.Server { return rules.For(address) }
	}
	if a.proxy == nil {
		return through
	}
	own := ns.clientProxy(a.proxy, through)
	return func(context.Context, string) *proxy.Server { return own }
}

// checkProxy validates a client's proxy, which may be nil. It must be a host that containers may reach.
func (ns *networks) checkProxy(p *berth.EgressProxy) error {
	if p == nil {
		return nil
	}
	r, err := ns.proxyRule(p)
	switch {
	case err != nil || len(r.Ports) != 1 || r.UDP || r.Name == "*" || r.Prefix.IsValid() && !r.Prefix.IsSingleIP() ||
		len(r.Name) > 1 && r.Name[0] == '*':
		return berth.Invalid("network.egressProxy.address",
			"Invalid address: expected the host and the port of a SOCKS5 proxy, such as 'proxy.example.com:1080'.")
	case !r.Private && !ns.permits(r) && !ns.permits(egress.Rule{Name: r.Name, Prefix: r.Prefix}):
		return berth.Invalid("network.egressProxy.address", "The proxy '%s' is not allowed on this server.", p.Address)
	case len(p.Username) > 255 || len(p.Password) > 255 || p.Username == "" && p.Password != "":
		return berth.Invalid("network.egressProxy.username",
			"Invalid credentials: expected a username and a password of at most 255 bytes each.")
	case p.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(p.CA)):
		return berth.Invalid("network.egressProxy.tls.caCert", "Invalid certificate: expected PEM.")
	case !p.TLS && (p.CA != "" || p.ServerName != ""):
		return berth.Invalid("network.egressProxy.tls", "Without TLS, the other fields of 'tls' have no effect.")
	}
	return nil
}

// proxyRule returns the rule that opens the way to a client's proxy.
func (ns *networks) proxyRule(p *berth.EgressProxy) (egress.Rule, error) {
	r, err := egress.ParseRule(p.Address)
	r.Private = egress.Covers(ns.opts.Network.Private, r)
	return r, err
}

// clientProxy returns a client's proxy, which checkProxy accepted. It is itself reached through another proxy, if
// through finds one, and has a public address unless the operator allows another.
func (ns *networks) clientProxy(p *berth.EgressProxy,
	through func(context.Context, string) *proxy.Server) *proxy.Server {
	u := &url.URL{Scheme: "socks5", Host: p.Address}
	if p.Username != "" {
		u.User = url.UserPassword(p.Username, p.Password)
	}
	var conf *tls.Config
	if p.TLS {
		u.Scheme = "socks5s"
		conf = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.ServerName,
			RootCAs: ns.opts.Network.Proxies.Authorities()}
		if p.CA != "" {
			conf.RootCAs = x509.NewCertPool()
			conf.RootCAs.AppendCertsFromPEM([]byte(p.CA))
		}
	}
	r, err := ns.proxyRule(p)
	if err != nil {
		r = egress.Rule{} // allows nothing
	}
	gate := &egress.Gate{Policy: &egress.Policy{Rules: []egress.Rule{r}}, Lookup: ns.opts.Network.Lookup,
		Dial: ns.opts.Network.Dial, Proxy: through}
	return proxy.NewServer(u, conf, gate.Connect)
}

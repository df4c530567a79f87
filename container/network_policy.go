package container

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/proxy"
)

// Types of a berth.NetworkPolicy.
const (
	networkDisabled  = "disabled"
	networkAllowlist = "allowlist"
	networkOpen      = "open" // Berth's extension: any public name
)

// Bounds on a network policy, beside the hosted service's.
const (
	maxDomains = 200
	maxSecrets = 32
	maxSecret  = 16 << 10 // bytes of a value; responses are searched for all encodings of each value
)

// NetworkOptions are the operator's rules for network policies. The zero value allows all
// public names and no private ones.
type NetworkOptions struct {
	// Allowed lists the names that policies may contain; nil means no limit. "open" requires
	// "*".
	Allowed []egress.Rule
	// Private lists names with private addresses, and private addresses, that a policy may
	// contain. Other names that resolve to private addresses are refused.
	Private []egress.Rule
	// Authorities are certificates in PEM that all containers trust beside their own: those of
	// this machine, for networks that inspect TLS.
	Authorities []byte
	// Secret returns the present value of a secret of a project, for transforms, or egress.ErrNoSecret. Nil: there are
	// none.
	Secret func(ctx context.Context, p berth.ProjectID, name string) (string, error)
	// Record receives connections. Like egress.Gate.Record it is waited for. It is called
	// concurrently and may be nil.
	Record func(p berth.ProjectID, id berth.ContainerID, f egress.Flow)

	// Slots bounds the connections of all containers together; nil means no bound.
	Slots *egress.Slots

	// Proxies are those through which containers reach hosts; nil means none.
	Proxies *proxy.Selector

	// Visit connects to a neighbour that another server of the cluster has. Nil: there is no other.
	Visit func(ctx context.Context, server string, v cluster.Visit) (net.Conn, error)

	// For tests, as in egress.Gate.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error)
}

// parse validates a policy and returns its network with transforms, or nil if the policy opens no network.
func (ns *networks) parse(id berth.ContainerID, n *berth.NetworkPolicy, transforms []egress.Transform) (*network,
	error) {
	if n == nil || n.Type == networkDisabled {
		return nil, nil
	}
	if ns.opts.Driver.Features().Network {
		return nil, berth.Invalid("network_policy.type",
			"The network policy '%s' cannot be enforced by this server's driver, which does not isolate networks.",
			n.Type)
	}
	if len(n.Denied) > 0 && n.Type != networkOpen {
		return nil, berth.Invalid("network_policy.denied_addresses",
			"Only the network policy 'open' has 'denied_addresses'.")
	}
	policy := &egress.Policy{}
	if err := ns.checkProxy(n.Proxy); err != nil {
		return nil, err
	}
	out := &network{access: access{policy: policy, transforms: transforms, proxy: n.Proxy}}
	switch n.Type {
	case networkOpen:
		if !ns.permits(egress.Rule{Name: "*"}) {
			return nil, berth.Invalid("network_policy.type", "The network policy 'open' is not allowed on this server.")
		}
		policy.Open = true
		if len(n.AllowedDomains) > 0 {
			if err := ns.addRules(policy, n.AllowedDomains); err != nil {
				return nil, err
			}
		}
		var err error
		if policy.Denied, err = denied(n.Denied); err != nil {
			return nil, err
		}
	case networkAllowlist:
		if err := ns.addRules(policy, n.AllowedDomains); err != nil {
			return nil, err
		}
	default:
		return nil, berth.Invalid("network_policy.type",
			"Invalid value: '%s'. Supported values are: 'disabled', 'allowlist', and 'open'.", n.Type)
	}
	if err := out.add(n.DomainSecrets, ns.checkSecret); err != nil {
		return nil, err
	}
	if err := addRequests(policy, n.AllowedRequests); err != nil {
		return nil, err
	}
	if len(out.secrets) > 0 || len(transforms) > 0 || len(policy.Requests) > 0 {
		var err error
		if out.access.ca, err = egress.NewAuthority(string(id)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// alone returns the network of a container whose policy opens none, or nil if it is in no group.
func (ns *networks) alone(c *berth.Container) *network {
	if c.Berth.Network == nil {
		return nil
	}
	return &network{access: access{policy: &egress.Policy{}}}
}

// addRules adds the rules of a policy's domains.
func (ns *networks) addRules(p *egress.Policy, domains []string) error {
	if len(domains) == 0 || len(domains) > maxDomains {
		return berth.Invalid("network_policy.allowed_domains",
			"Invalid 'network_policy.allowed_domains': expected 1 to %d domains, but got %d.", maxDomains, len(domains))
	}
	for i, domain := range domains {
		at := fmt.Sprintf("network_policy.allowed_domains[%d]", i)
		r, err := egress.ParseRule(domain)
		if err != nil {
			return berth.Invalid(at, "Invalid domain: %v.", err)
		}
		if r.Prefix.IsValid() && !ns.opts.Driver.Features().Routes {
			return berth.Invalid(at,
				"The address '%s' cannot be reached with this server's driver, which has no route for addresses.",
				domain)
		}
		r.Private = egress.Covers(ns.opts.Network.Private, r)
		if !r.Private && !ns.permits(r) {
			return berth.Invalid(at, "The domain '%s' is not allowed on this server.", domain)
		}
		p.Rules = append(p.Rules, r)
	}
	return nil
}

// addRequests adds the rules for requests. A rule for a host that can be reached another way would restrict nothing, so
// it is refused.
func addRequests(p *egress.Policy, requests []string) error {
	if len(requests) > maxDomains {
		return berth.Invalid("network_policy.allowed_requests", "A network policy has at most %d 'allowed_requests'.",
			maxDomains)
	}
	for i, text := range requests {
		at := fmt.Sprintf("network_policy.allowed_requests[%d]", i)
		r, err := egress.ParseRequest(text)
		if err != nil {
			return berth.Invalid(at, "Invalid request: %v.", err)
		}
		if p.Open {
			return berth.Invalid(at, "The network policy 'open' reaches every host by its address, so it cannot have "+
				"'allowed_requests'. Use an allowlist.")
		}
		if !allowsName(p, egress.Rule{Name: r.Host}) {
			return berth.Invalid(at, "The host '%s' of a request is not among 'allowed_domains'.", r.Host)
		}
		p.Requests = append(p.Requests, r)
	}
	if len(p.Requests) == 0 {
		return nil
	}
	for i, r := range p.Rules {
		if r.Prefix.IsValid() && !r.UDP && slices.ContainsFunc(egress.DefaultPorts, r.HasPort) {
			return berth.Invalid(fmt.Sprintf("network_policy.allowed_domains[%d]", i),
				"The address '%s' may lead to a host of 'allowed_requests'. Allow it by a name, or at another port.", r)
		}
	}
	return nil
}

// allowsName reports whether a rule of a policy covers a name, at any port.
func allowsName(p *egress.Policy, name egress.Rule) bool {
	return slices.ContainsFunc(p.Rules, func(a egress.Rule) bool {
		a.Ports = nil
		return egress.Covers([]egress.Rule{a}, name)
	})
}

// denied parses the denied addresses of a policy: addresses and prefixes.
func denied(addresses []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for i, text := range addresses {
		prefix, err := netip.ParsePrefix(text)
		if addr, alone := netip.ParseAddr(text); alone == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err != nil || prefix.Addr().Is4In6() {
			return nil, berth.Invalid(fmt.Sprintf("network_policy.denied_addresses[%d]", i),
				"Invalid address '%s': expected an address such as '198.51.100.7' or a prefix such as '198.51.100.0/24'.",
				text)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// permits reports whether policies may contain the public rule r. A server that permits all
// names permits all public addresses.
func (ns *networks) permits(r egress.Rule) bool {
	if r.Prefix.IsValid() && r.Prefix.Bits() > 0 && !egress.Public(r.Prefix.Addr()) {
		return false
	}
	allowed := ns.opts.Network.Allowed
	return allowed == nil || egress.Covers(allowed, r) ||
		r.Prefix.IsValid() && egress.Covers(allowed, egress.Rule{Name: "*", Ports: r.Ports})
}

// accepts reports whether a container can serve a request with the policy want. A request
// without a policy accepts every container.
func (s *instance) accepts(want *berth.NetworkPolicy) bool {
	if want == nil {
		return true
	}
	have := s.networkPolicy()
	if want.Type != have.Type || !slices.Equal(want.AllowedDomains, have.AllowedDomains) || !slices.Equal(want.Denied,
		have.Denied) || !slices.Equal(want.AllowedRequests, have.AllowedRequests) {
		return false
	}
	var secrets []egress.Secret
	if n := s.network.Load(); n != nil {
		secrets = n.secrets
	}
	return slices.EqualFunc(want.DomainSecrets, secrets, sameSecret)
}

// withoutSecrets returns a policy as it is stored and returned to clients.
func withoutSecrets(n *berth.NetworkPolicy) berth.NetworkPolicy {
	if n == nil {
		return berth.NetworkPolicy{Type: networkDisabled}
	}
	return berth.NetworkPolicy{Type: n.Type, AllowedDomains: n.AllowedDomains, AllowedRequests: n.AllowedRequests,
		Denied: n.Denied}
}

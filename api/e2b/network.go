package e2b

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/internal/rule"
)

// A network is what a request to create a sandbox says of it.
type network struct {
	AllowOut      []string                         `json:"allowOut"`
	DenyOut       []string                         `json:"denyOut"`
	Rules         map[string][]deadline.HeaderRule `json:"rules"`
	PublicTraffic *bool                            `json:"allowPublicTraffic"` // nil means true
	RequestHost   string                           `json:"maskRequestHost"`
	HTTPSPorts    []int                            `json:"httpsPorts"`
	Proxy         *deadline.EgressProxy            `json:"egressProxy"`
}

// Bounds on rules.
const (
	maxHosts = 100
	maxRules = 16 // of a host
)

var rulesOfHost = rule.List(rule.Object(rule.Fields{"transform": rule.Object(rule.Fields{"headers": texts})}), maxRules)

// rulesBody checks rules, an object of lists by host.
func rulesBody(at string, v any) error {
	hosts, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	if len(hosts) > maxHosts {
		return berth.Invalid(at, "Invalid '%s': expected at most %d hosts, but got %d.", at, maxHosts, len(hosts))
	}
	for host, rules := range hosts {
		if err := rulesOfHost(rule.Join(at, host), rules); err != nil {
			return err
		}
	}
	return nil
}

// hostHeader matches a Host header for servers in a sandbox.
var hostHeader = regexp.MustCompile(`^[A-Za-z0-9.-]{1,200}(:([0-9]{1,5}|\$\{PORT\}))?$`)

// requestHost checks maskRequestHost.
func requestHost(at string, v any) error {
	text, ok := v.(string)
	if !ok {
		return rule.WrongType(at, "a string", v)
	}
	if text != "" && !hostHeader.MatchString(text) {
		return berth.Invalid(at, "Invalid '%s': '%s'. Expected a host such as 'localhost:${PORT}'.", at,
			rule.Clip(text))
	}
	return nil
}

// ports returns the settings of a request for the ports of its sandbox.
func (n network) ports() deadline.Ports {
	return deadline.Ports{Private: n.PublicTraffic != nil && !*n.PublicTraffic, Host: n.RequestHost, TLS: n.HTTPSPorts}
}

// policyOf returns the network policy and the transforms of a container. What a client allows beats what it denies. A
// denial of all addresses leaves the allowed ones.
func policyOf(o *deadline.Outward) (*berth.NetworkPolicy, []egress.Transform, error) {
	transforms, err := transforms(o.Rules)
	if err != nil {
		return nil, nil, err
	}
	for i, to := range o.DenyOut {
		if !isAddresses(to) {
			at := fmt.Sprintf("network.denyOut[%d]", i)
			return nil, nil,
				berth.Invalid(at, "Invalid '%s': '%s'. Expected an address or a range such as '10.0.0.0/8'.",
					at, rule.Clip(to))
		}
	}
	denied := o.Internet != nil && !*o.Internet || slices.Contains(o.DenyOut, "0.0.0.0/0") || slices.Contains(o.DenyOut,
		"::/0")
	if i := slices.IndexFunc(o.AllowOut, func(to string) bool { return !isAddresses(to) }); i >= 0 && !denied {
		at := fmt.Sprintf("network.allowOut[%d]", i)
		return nil, nil,
			berth.Invalid(at, "Invalid '%s': the name '%s' has no effect while all other hosts are allowed. "+
				"Add '0.0.0.0/0' to 'denyOut'.", at, rule.Clip(o.AllowOut[i]))
	}
	switch {
	case !denied:
		return &berth.NetworkPolicy{Type: "open", AllowedDomains: o.AllowOut, Denied: o.DenyOut,
			Proxy: proxyOf(o.Proxy)}, transforms, nil
	case len(o.AllowOut) > 0:
		return &berth.NetworkPolicy{Type: "allowlist", AllowedDomains: o.AllowOut, Proxy: proxyOf(o.Proxy)}, transforms,
			nil
	}
	return nil, transforms, nil
}

// The metadata with which a sandbox joins the private network of a group. E2B's clients pass only their own options of
// a network on.
const (
	groupMetadata = "berth.group"
	nameMetadata  = "berth.name" // by which the others reach it
)

// groupOf returns the group that the metadata of a sandbox name, or nil.
func groupOf(metadata map[string]string) *berth.GroupNetwork {
	group, name := metadata[groupMetadata], metadata[nameMetadata]
	if group == "" && name == "" {
		return nil
	}
	return &berth.GroupNetwork{Group: group, Name: name}
}

// proxyOf returns the proxy of a request, or nil.
func proxyOf(p *deadline.EgressProxy) *berth.EgressProxy {
	if p == nil {
		return nil
	}
	out := &berth.EgressProxy{Address: p.Address, Username: p.Username, Password: p.Password}
	if p.TLS != nil {
		out.TLS, out.ServerName, out.CA = p.TLS.Enabled, p.TLS.ServerName, p.TLS.CA
	}
	return out
}

// egressProxy checks a client's proxy. Without one, connections are made directly, as E2B's clients write null.
func egressProxy(at string, v any) error {
	if v == nil {
		return nil
	}
	return proxyBody(at, v)
}

var proxyBody = rule.Object(rule.Fields{"address": rule.Text(1, 300), "username": rule.Text(0, 255),
	"password": rule.Text(0, 255), "tls": func(at string, v any) error {
		if v == nil {
			return nil
		}
		return rule.Object(rule.Fields{"enabled": rule.Boolean, "serverName": rule.Text(0, 253),
			"caCert": rule.Text(0, 64<<10)}, "enabled")(at, v)
	}}, "address")

// isAddresses reports whether a text is an address or a range of addresses, and not the name of a host.
func isAddresses(text string) bool {
	if _, err := netip.ParsePrefix(text); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(text); err == nil {
		return true
	}
	_, err := netip.ParseAddr(text)
	return err == nil
}

// transforms returns the transforms of rules. Of the rules of one host, a later one replaces fields of an earlier one.
func transforms(rules map[string][]deadline.HeaderRule) ([]egress.Transform, error) {
	var all []egress.Transform
	for _, host := range slices.Sorted(maps.Keys(rules)) {
		at := rule.Join("network.rules", host)
		one, err := egress.ParseTransform(host, nil)
		for _, r := range rules[host] {
			if r.Transform == nil || err != nil {
				continue
			}
			var next egress.Transform
			if next, err = egress.ParseTransform(host, r.Transform.Headers); err == nil {
				maps.Copy(one.Headers, next.Headers)
			}
		}
		if err != nil {
			return nil, berth.Invalid(at, "Invalid '%s': %v.", at, err)
		}
		if slices.ContainsFunc(all, func(t egress.Transform) bool { return t.Host == one.Host }) {
			return nil, berth.Invalid(at, "Invalid '%s': the host is there twice.", at)
		}
		all = append(all, one)
	}
	return all, nil
}

// A networkInfo describes the network of a sandbox. It is that of the request which set it.
type networkInfo struct {
	AllowOut      []string                         `json:"allowOut,omitempty"`
	DenyOut       []string                         `json:"denyOut,omitempty"`
	Rules         map[string][]deadline.HeaderRule `json:"rules,omitempty"`
	PublicTraffic bool                             `json:"allowPublicTraffic"`
	RequestHost   string                           `json:"maskRequestHost,omitempty"`
	HTTPSPorts    []int                            `json:"httpsPorts,omitempty"`
	Proxy         *deadline.EgressProxy            `json:"egressProxy,omitempty"`
}

func networkOf(rec *deadline.Record) *networkInfo {
	return &networkInfo{rec.Outward.AllowOut, rec.Outward.DenyOut, rec.Outward.Rules, !rec.Ports.Private,
		rec.Ports.Host, rec.Ports.TLS, rec.Outward.Proxy}
}

// networkBody checks the body of PUT /sandboxes/{sandbox}/network.
var networkBody = rule.Object(rule.Fields{"allow_internet_access": rule.Boolean,
	"allowOut": rule.List(rule.Text(1, 256), 100), "denyOut": rule.List(rule.Text(1, 64), 100),
	"rules": rulesBody, "egressProxy": egressProxy})

// setNetwork serves PUT /sandboxes/{sandbox}/network: it replaces all rules for connections to the
// outside, and ends those that are open.
func (h *sandboxes) setNetwork(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body deadline.Outward
	if err := x.DecodeOptional(r, networkBody, &body); err != nil {
		return err
	}
	policy, transforms, err := policyOf(&body)
	if err != nil {
		return err
	}
	id := sandboxOf(r)
	if _, _, err := h.deadlines.Read(r.Context(), c.Project, id); err != nil {
		return err
	}
	err = h.deadlines.During(r.Context(), c.Project, id, berth.EventSandboxUpdated, func() error {
		if err := h.containers.SetNetworkPolicy(r.Context(), c, id, policy, transforms); err != nil {
			return err
		}
		_, err := h.deadlines.Update(r.Context(), c.Project, id, func(rec *deadline.Record) error {
			rec.Outward = body
			rec.Outward.Proxy = body.Proxy.Shown()
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

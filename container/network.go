package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/store"
)

// The types of a berth.NetworkPolicy.
const (
	networkDisabled  = "disabled"
	networkAllowlist = "allowlist"
	networkOpen      = "open" // Berth's own: any public name
)

// Bounds on a network policy, beside the hosted service's.
const (
	maxDomains = 200
	maxSecrets = 32
	maxSecret  = 16 << 10 // bytes of a value: of each, all its forms are looked for in what a host answers
)

// NetworkOptions say which network policies containers may have. The zero value
// allows any public name, and nothing inside.
type NetworkOptions struct {
	// Allowed bounds what policies may name; nil is anything. "open" needs "*".
	Allowed []egress.Rule
	// Private are names whose addresses are not public, and addresses that are not. A
	// policy that names one reaches it; other names that resolve to such addresses are
	// refused.
	Private []egress.Rule
	// Authorities are certificates that all containers trust, in PEM: those that
	// this machine trusts, for networks where TLS is inspected.
	Authorities []byte
	// Record is told of connections, as egress.Gate.Record is, which waits for it. It
	// may be nil, and is called at once by many.
	Record func(p berth.ProjectID, id berth.ContainerID, f egress.Flow)

	// Places bounds the connections of all containers together; nil is no bound.
	Places *egress.Places

	// For tests, as in egress.Gate.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error)
}

// kindNetwork is the kind of object that holds a container's secrets, sealed.
const kindNetwork = store.KindContainerNetwork

// A network is a container's way out.
type network struct {
	policy  *egress.Policy
	secrets []egress.Secret
	ca      *egress.Authority // nil without secrets

	traffic egress.Traffic
}

// networks checks network policies and connects sandboxes to the world by them.
type networks struct {
	opts  *Options
	trail *trail
}

// parse checks a policy and returns what it opens, nil for nothing.
func (ns *networks) parse(id berth.ContainerID, n *berth.NetworkPolicy) (*network, error) {
	if n == nil || n.Type == networkDisabled {
		return nil, nil
	}
	if ns.opts.Driver.Features().Network {
		return nil, berth.Invalid("network_policy.type", "The network policy '%s' cannot be kept by this server's driver, which does not isolate networks.", n.Type)
	}
	out := &network{policy: &egress.Policy{}}
	switch n.Type {
	case networkOpen:
		if len(n.AllowedDomains) > 0 {
			return nil, berth.Invalid("network_policy.allowed_domains", "The network policy 'open' has no 'allowed_domains'.")
		}
		if !ns.permits(egress.Rule{Name: "*"}) {
			return nil, berth.Invalid("network_policy.type", "The network policy 'open' is not allowed on this server.")
		}
		out.policy.Open = true
	case networkAllowlist:
		if err := ns.addRules(out.policy, n.AllowedDomains); err != nil {
			return nil, err
		}
	default:
		return nil, berth.Invalid("network_policy.type", "Invalid value: '%s'. Supported values are: 'disabled', 'allowlist', and 'open'.", n.Type)
	}
	return out, out.add(id, n.DomainSecrets)
}

// allow adds the rules of a policy's domains.
func (ns *networks) addRules(p *egress.Policy, domains []string) error {
	if len(domains) == 0 || len(domains) > maxDomains {
		return berth.Invalid("network_policy.allowed_domains", "Invalid 'network_policy.allowed_domains': expected 1 to %d domains, but got %d.", maxDomains, len(domains))
	}
	for i, domain := range domains {
		at := fmt.Sprintf("network_policy.allowed_domains[%d]", i)
		r, err := egress.ParseRule(domain)
		if err != nil {
			return berth.Invalid(at, "Invalid domain: %v.", err)
		}
		if r.Prefix.IsValid() && !ns.opts.Driver.Features().Routes {
			return berth.Invalid(at, "The address '%s' cannot be reached with this server's driver, which has no route for addresses.", domain)
		}
		r.Private = egress.Covers(ns.opts.Network.Private, r)
		if !r.Private && !ns.permits(r) {
			return berth.Invalid(at, "The domain '%s' is not allowed on this server.", domain)
		}
		p.Rules = append(p.Rules, r)
	}
	return nil
}

// mayName reports whether a policy may name what is public. Whoever may name any
// name may name any public address.
func (ns *networks) permits(r egress.Rule) bool {
	if r.Prefix.IsValid() && r.Prefix.Bits() > 0 && !egress.Public(r.Prefix.Addr()) {
		return false
	}
	allowed := ns.opts.Network.Allowed
	return allowed == nil || egress.Covers(allowed, r) ||
		r.Prefix.IsValid() && egress.Covers(allowed, egress.Rule{Name: "*", Ports: r.Ports})
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// add gives the network its secrets, each with a placeholder.
func (n *network) add(id berth.ContainerID, secrets []berth.DomainSecret) (err error) {
	if len(secrets) == 0 {
		return nil
	}
	if len(secrets) > maxSecrets {
		return berth.Invalid("network_policy.domain_secrets", "A container has at most %d secrets.", maxSecrets)
	}
	for i, s := range secrets {
		at := fmt.Sprintf("network_policy.domain_secrets[%d]", i)
		r, err := egress.ParseRule(s.Domain)
		if err != nil || r.Name == "" || r.Name == "*" || len(r.Ports) > 0 {
			return berth.Invalid(at+".domain", "Invalid domain: expected a name or *.name.")
		}
		if !n.policy.Open && !slices.ContainsFunc(n.policy.Rules, func(a egress.Rule) bool { a.Ports = nil; return egress.Covers([]egress.Rule{a}, r) }) {
			return berth.Invalid(at+".domain", "The domain '%s' of a secret is not among 'allowed_domains'.", s.Domain)
		}
		if !variableName.MatchString(s.Name) || strings.HasPrefix(s.Name, "BERTH_") {
			return berth.Invalid(at+".name", "Invalid name: expected the name of an environment variable.")
		}
		if len(s.Value) < 4 || strings.ContainsAny(s.Value, "\x00\r\n") {
			return berth.Invalid(at+".value", "A secret has at least 4 characters, in one line.") // a shorter one would be masked everywhere
		}
		if len(s.Value) > maxSecret {
			return berth.Invalid(at+".value", "A secret has at most %d bytes on this server.", maxSecret)
		}
		n.secrets = append(n.secrets, egress.Secret{Domain: r.Name, Name: s.Name, Value: s.Value, Placeholder: egress.NewPlaceholder(s.Name)})
	}
	n.ca, err = egress.NewAuthority(string(id))
	return err
}

// sealed is what is kept of a network, so that a container outlives its server.
type sealed struct {
	Secrets   []egress.Secret
	Authority []byte
}

// secretsObject returns the object that holds the network's secrets so that only this
// server can read them; nil if there are none.
func (ns *networks) secretsObject(s *instance) (*store.Object, error) {
	if s.network == nil || len(s.network.secrets) == 0 {
		return nil, nil
	}
	authority, err := s.network.ca.Marshal()
	if err != nil {
		return nil, err
	}
	plain, err := json.Marshal(sealed{s.network.secrets, authority})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(ns.opts.Seal.Seal(nil, nil, plain, bound(s)))
	if err != nil {
		return nil, err
	}
	return &store.Object{ObjectKey: networkKey(s.id), CreatedAt: ns.opts.now().Unix(), Body: body}, nil
}

// loadNetwork restores the network of a container that a former process made.
func (ns *networks) load(ctx context.Context, s *instance) error {
	policy := s.body.NetworkPolicy
	n, err := ns.parse(s.id, &policy)
	if err != nil || n == nil {
		return err
	}
	s.network = n
	o, err := ns.opts.Store.GetObject(ctx, s.project, networkKey(s.id))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var box []byte
	if err := json.Unmarshal(o.Body, &box); err != nil {
		return err
	}
	plain, err := ns.opts.Seal.Open(nil, nil, box, bound(s))
	if err != nil {
		return fmt.Errorf("its secrets cannot be opened with this server's key: %w", err)
	}
	var kept sealed
	if err := json.Unmarshal(plain, &kept); err != nil {
		return err
	}
	n.secrets = kept.Secrets
	n.ca, err = egress.ParseAuthority(kept.Authority)
	return err
}

// forgetSecrets removes a container's secrets.
func (ns *networks) deleteSecrets(ctx context.Context, s *instance) error {
	return ignoreNotFound(ns.opts.Store.DeleteObject(ctx, s.project, networkKey(s.id)))
}

func networkKey(id berth.ContainerID) store.ObjectKey {
	return store.ObjectKey{Kind: kindNetwork, Parent: string(id), ID: "network"}
}

// bound ties a box to one container.
func bound(s *instance) []byte {
	return []byte("container.network\x00" + s.project + "\x00" + berth.ProjectID(s.id))
}

// connectOut gives a sandbox its way out, as long as it lives. It returns when the
// guest has it, or ctx ends.
func (ns *networks) connect(ctx context.Context, s *instance) error {
	if s.network == nil {
		return nil
	}
	log := ns.opts.Log.With("container", s.id, "project", s.project)
	gate := &egress.Gate{Policy: s.network.policy, Secrets: s.network.secrets, CA: s.network.ca,
		Lookup: ns.opts.Network.Lookup, Dial: ns.opts.Network.Dial, Record: ns.recorder(s, log), Traffic: &s.network.traffic, Places: ns.opts.Network.Places}
	told := guest.Network{Authorities: bytes.Clone(ns.opts.Network.Authorities), Environment: map[string]string{},
		Addresses: addressNeed(s.network.policy)}
	if s.network.ca != nil {
		told.Authorities = append(append(told.Authorities, '\n'), s.network.ca.PEM()...)
	}
	for _, secret := range s.network.secrets {
		told.Environment[secret.Name] = secret.Placeholder
	}
	connected := make(chan struct{}, 1)
	go s.client.Outward(s.life, gate, told, func(err error) {
		if err != nil {
			log.Warn("a container's network is not connected", "err", err)
			return
		}
		select {
		case connected <- struct{}{}:
		default:
		}
	})
	select {
	case <-connected:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.life.Done():
		return context.Cause(s.life)
	}
}

// addressNeed says whether a policy is kept only with a route for addresses. "open"
// is mostly about names.
func addressNeed(p *egress.Policy) guest.Need {
	switch {
	case !p.Addresses():
		return guest.NotNeeded
	case p.Open:
		return guest.Wanted
	}
	return guest.Needed
}

// recorder logs connections. A hostile sandbox can make as many as it
// likes, so only some refusals are logged.
func (ns *networks) recorder(s *instance, log *slog.Logger) func(egress.Flow) {
	often := rate.NewLimiter(rate.Every(time.Second), 20)
	return func(f egress.Flow) {
		if !f.Begins && often.Allow() {
			log.Info("egress", "target", f.Target.String(), "allowed", f.Allowed, "reason", f.Reason, "sent", f.Sent, "received", f.Received)
		}
		ns.trail.recordFlow(s, f)
		if ns.opts.Network.Record != nil {
			ns.opts.Network.Record(s.project, s.id, f)
		}
	}
}

// samePolicy reports whether a container may serve a request that asks for a
// policy: one that asks for none takes what there is.
func (s *instance) samePolicy(want *berth.NetworkPolicy) bool {
	if want == nil {
		return true
	}
	have := s.body.NetworkPolicy
	if want.Type != have.Type || !slices.Equal(want.AllowedDomains, have.AllowedDomains) {
		return false
	}
	var kept []egress.Secret
	if s.network != nil {
		kept = s.network.secrets
	}
	return slices.EqualFunc(want.DomainSecrets, kept, func(w berth.DomainSecret, k egress.Secret) bool {
		return w.Name == k.Name && w.Value == k.Value && strings.EqualFold(w.Domain, k.Domain)
	})
}

// publicPolicy is a policy as it is kept and shown: without secrets.
func publicPolicy(n *berth.NetworkPolicy) berth.NetworkPolicy {
	if n == nil {
		return berth.NetworkPolicy{Type: networkDisabled}
	}
	return berth.NetworkPolicy{Type: n.Type, AllowedDomains: n.AllowedDomains}
}

package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/mint"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/store"
	"golang.org/x/time/rate"
)

// networks checks network policies and connects sandboxes to the network by them.
type networks struct {
	opts       *Options
	trail      *trail
	neighbours *neighbours
}

// kindNetwork is the kind of the object that holds a container's sealed secrets, transforms and authority.
const kindNetwork = store.KindContainerNetwork

// networkState is the part of a network that is stored, so that a container outlives its server.
type networkState struct {
	Secrets    []egress.Secret
	Transforms []egress.Transform `json:",omitempty"`
	Authority  []byte
	Proxy      *berth.EgressProxy `json:",omitempty"`
}

// secretsObject returns the object with the sealed secrets and transforms of a container's network, or nil if there
// are none.
func (ns *networks) secretsObject(s *instance, n *network) (*store.Object, error) {
	if n == nil {
		return nil, nil
	}
	a := n.present()
	if a.ca == nil && a.proxy == nil {
		return nil, nil
	}
	saved := networkState{Secrets: n.secrets, Transforms: a.transforms, Proxy: a.proxy}
	if a.ca != nil {
		var err error
		if saved.Authority, err = a.ca.Marshal(); err != nil {
			return nil, err
		}
	}
	plain, err := json.Marshal(saved)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(ns.opts.Seal.Seal(nil, nil, plain, secretsLabel(s)))
	if err != nil {
		return nil, err
	}
	return &store.Object{ObjectKey: networkKey(s.id), CreatedAt: ns.opts.clock.Now().Unix(), Body: body}, nil
}

// load restores the network of a container of a former process.
func (ns *networks) load(ctx context.Context, s *instance) error {
	policy := s.body.NetworkPolicy
	n, err := ns.parse(s.id, &policy, nil)
	if n == nil && err == nil {
		n = ns.alone(&s.body)
	}
	if err != nil || n == nil {
		return err
	}
	s.network.Store(n)
	o, err := ns.opts.Store.GetObject(ctx, s.project, networkKey(s.id))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var box []byte
	if err := json.Unmarshal(o.Body, &box); err != nil {
		return fmt.Errorf("decode secrets: %w", err)
	}
	plain, err := ns.opts.Seal.Open(nil, nil, box, secretsLabel(s))
	if err != nil {
		return fmt.Errorf("unseal network secrets: %w", err)
	}
	var saved networkState
	if err := json.Unmarshal(plain, &saved); err != nil {
		return fmt.Errorf("decode secrets: %w", err)
	}
	n.secrets, n.access.transforms, n.access.proxy = saved.Secrets, saved.Transforms, saved.Proxy
	if len(saved.Authority) == 0 {
		return nil
	}
	n.access.ca, err = egress.ParseAuthority(saved.Authority)
	return err
}

// save replaces the stored secrets and transforms of a container by those of a network, which may be nil.
func (ns *networks) save(ctx context.Context, s *instance, n *network) error {
	o, err := ns.secretsObject(s, n)
	if err != nil {
		return err
	}
	if o == nil {
		return ns.deleteSecrets(ctx, s)
	}
	_, err = ns.opts.Store.UpdateObject(ctx, s.project, o.ObjectKey, func(saved *store.Object) error {
		saved.Body = o.Body
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return ns.opts.Store.CreateObjects(ctx, s.project, o)
	}
	return err
}

// deleteSecrets removes a container's secrets and transforms.
func (ns *networks) deleteSecrets(ctx context.Context, s *instance) error {
	return ignoreNotFound(ns.opts.Store.DeleteObject(ctx, s.project, networkKey(s.id)))
}

func networkKey(id berth.ContainerID) store.ObjectKey {
	return store.ObjectKey{Kind: kindNetwork, Parent: string(id), ID: "network"}
}

// secretsLabel is the associated data that binds sealed secrets to one container.
func secretsLabel(s *instance) []byte {
	return []byte("container.network\x00" + s.project + "\x00" + berth.ProjectID(s.id))
}

// connect connects a sandbox to the network as long as it lives. It returns when the guest
// is connected, or ctx ends.
func (ns *networks) connect(ctx context.Context, s *instance) error {
	n := s.network.Load()
	if n == nil {
		return nil
	}
	log := ns.opts.Log.With("container", s.id, "project", s.project)
	n.connected(ns.gates(s, n))
	connected := make(chan struct{}, 1)
	go s.client.Outward(s.life, &n.gates, func() guest.Network { return ns.settings(s, n) }, func(err error) {
		if err != nil {
			log.Warn("failed to connect a container to the network", "err", err)
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

// gates returns a function that makes the gate of a container for an access.
func (ns *networks) gates(s *instance, n *network) func(access) *egress.Gate {
	log := ns.opts.Log.With("container", s.id, "project", s.project)
	record, seldom := ns.recorder(s, log), rate.NewLimiter(rate.Every(time.Second), 1)
	var value func(context.Context, string) (string, error)
	if ns.opts.Network.Secret != nil {
		value = func(ctx context.Context, name string) (string, error) {
			value, err := ns.opts.Network.Secret(ctx, s.project, name)
			if err != nil && !errors.Is(err, egress.ErrNoSecret) && !errors.Is(err, context.Canceled) &&
				seldom.Allow() {
				log.Error("failed to read a secret for a network rule", "err", err)
			}
			return value, err
		}
	}
	find := ns.neighbours.of(s)
	source := func(g *mint.Grant) *mint.Source { return ns.source(s.project, g) }
	tokens := func(secret egress.Secret) *mint.Source { return n.tokens.of(secret, source) }
	return func(a access) *egress.Gate {
		return &egress.Gate{Policy: a.policy, Neighbours: find, Secrets: n.secrets, Transforms: a.transforms,
			Value: value, Tokens: tokens, CA: a.ca,
			Lookup: ns.opts.Network.Lookup, Dial: ns.opts.Network.Dial, Record: record, Traffic: &n.traffic,
			Slots: ns.opts.Network.Slots, Proxy: ns.proxyOf(s.project, a), Roots: ns.opts.Network.Proxies.Authorities()}
	}
}

// settings returns what the guest needs for a network.
func (ns *networks) settings(s *instance, n *network) guest.Network {
	a := n.present()
	settings := guest.Network{Authorities: bytes.Clone(ns.opts.Network.Authorities), Environment: map[string]string{},
		Addresses: addressNeed(a.policy)}
	if s.body.Berth.Network != nil && settings.Addresses == guest.NotNeeded {
		settings.Addresses = guest.Wanted // all ports of neighbours, by their names
	}
	if a.ca != nil {
		settings.Authorities = append(append(settings.Authorities, '\n'), a.ca.PEM()...)
	}
	setPlaceholders(settings.Environment, n.secrets)
	return settings
}

// addressNeed returns whether a policy requires a route for addresses. Containers with "open"
// mostly use names.
func addressNeed(p *egress.Policy) guest.Need {
	switch {
	case !p.Addresses():
		return guest.NotNeeded
	case p.Open:
		return guest.Wanted
	}
	return guest.Needed
}

// recorder returns a function that logs and audits connections. A hostile sandbox can make
// many, so the log is rate-limited.
func (ns *networks) recorder(s *instance, log *slog.Logger) func(egress.Flow) {
	often := rate.NewLimiter(rate.Every(time.Second), 20)
	return func(f egress.Flow) {
		if !f.Opening && often.Allow() {
			log.Info("egress", "target", f.Target.String(), "allowed", f.Allowed, "reason", f.Reason, "sent", f.Sent,
				"received", f.Received)
		}
		ns.trail.recordFlow(s, f)
		if ns.opts.Network.Record != nil {
			ns.opts.Network.Record(s.project, s.id, f)
		}
	}
}

package container

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/egress"
)

// replace puts the network next in the place of the present one. Each is nil without access.
func (ns *networks) replace(ctx context.Context, s *instance, present, next *network) error {
	ctx, cancel := ns.opts.clock.WithTimeout(ctx, guestTimeout)
	defer cancel()
	paused := s.isPaused()
	switch {
	case present == nil && next == nil:
		return nil
	case present == nil:
		s.network.Store(next)
		if paused { // it is connected when it is resumed
			go func() { _ = ns.connect(s.life, s) }()
			return nil
		}
		return ns.connect(ctx, s)
	}
	a := access{policy: &egress.Policy{}} // allows nothing
	if next != nil {
		a = next.present()
	}
	present.open(a, ns.gates(s, present))
	if paused {
		return nil
	}
	if err := s.client.SetNetwork(ctx, ns.settings(s, present)); err != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err,
			Message: "The network policy is in force, but the sandbox could not be prepared for it."}
	}
	return nil
}

// networkPolicy returns the present policy, without its secrets.
func (s *instance) networkPolicy() berth.NetworkPolicy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policy.present != nil {
		return *s.policy.present
	}
	return s.body.NetworkPolicy
}

// recordPolicy records a new network policy with its network, which may be nil.
func (t *trail) recordPolicy(s *instance, key berth.KeyID, kind string, n *network) {
	if t.opts.Audit == nil {
		return
	}
	e := s.entry(audit.NetworkChanged)
	e.Reason = kind
	entries := append([]audit.Entry{e}, t.bound(s, n)...)
	for i := range entries {
		entries[i].Key = key
	}
	t.opts.Audit.Record(entries...)
}

package container

import (
	"cmp"
	"context"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/egress"
)

// SetNetworkPolicy replaces a container's network policy and transforms. All its connections end, and the new policy
// decides about later ones, also those of processes that run already. Secrets are bound to a policy, so
// neither the old nor the new one may have any. If the policy cannot be saved, nothing changes.
func (svc *Service) SetNetworkPolicy(ctx context.Context, c berth.Caller, id berth.ContainerID,
	want *berth.NetworkPolicy, transforms []egress.Transform) error {
	s, err := svc.leases.find(ctx, c.Project, id)
	if err != nil {
		return err
	}
	ctx, stop := s.withLife(ctx)
	defer stop()
	if err := s.waitStarted(ctx); err != nil {
		return err
	}
	if err := s.policy.lock.acquire(ctx); err != nil {
		return err
	}
	defer s.policy.lock.release()
	next, err := svc.networks.parse(id, want, transforms)
	if err != nil {
		return err
	}
	present := s.network.Load()
	if present != nil && len(present.secrets) > 0 || next != nil && len(next.secrets) > 0 {
		return berth.Invalid("network_policy.domain_secrets",
			"The network policy of a container with secrets cannot be changed.")
	}
	if present != nil && next != nil && len(next.access.transforms) > 0 {
		// Programs that run trust the present authority.
		next.access.ca = cmp.Or(present.present().ca, next.access.ca)
	}
	if err := svc.networks.save(ctx, s, next); err != nil {
		return fmt.Errorf("save transforms: %w", err)
	}
	saved := withoutSecrets(want)
	_, err = svc.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
		if c.Status != berth.ContainerRunning {
			return goneError(c, c.Berth.Reason)
		}
		c.NetworkPolicy = saved
		return nil
	})
	if err != nil {
		if undone := svc.networks.save(context.WithoutCancel(ctx), s, present); undone != nil {
			svc.opts.Log.Error("failed to restore the transforms of a container", "container", s.id, "err", undone)
		}
		return err
	}
	s.mu.Lock()
	s.policy.present = &saved
	s.mu.Unlock()
	svc.networks.trail.recordPolicy(s, c.Key, saved.Type, next)
	return svc.networks.replace(ctx, s, present, next)
}

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
	if err := s.client.SetNetwork(ctx, ns.settings(present)); err != nil {
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
	entries := append([]audit.Entry{e}, s.bound(n)...)
	for i := range entries {
		entries[i].Key = key
	}
	t.opts.Audit.Record(entries...)
}

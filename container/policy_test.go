package container

import (
	"testing"

	"github.com/berth-run/berth"
)

// A chain continues in its container only if that has exactly the requested network policy,
// with the same secrets.
func TestPolicyOfAChain(t *testing.T) {
	h := newHarness(t)
	secret := berth.DomainSecret{Domain: "a.example", Name: "KEY", Value: "value-1"}
	policy := func(domains []string, secrets ...berth.DomainSecret) *berth.NetworkPolicy {
		return &berth.NetworkPolicy{Type: networkAllowlist, AllowedDomains: domains, DomainSecrets: secrets}
	}
	changed := func(change func(*berth.DomainSecret)) *berth.NetworkPolicy {
		s := secret
		change(&s)
		return policy([]string{"a.example", "b.example"}, s)
	}
	env := func(n *berth.NetworkPolicy) berth.ShellToolEnvironment {
		return berth.ShellToolEnvironment{Type: berth.EnvironmentAuto, NetworkPolicy: n}
	}
	both := []string{"a.example", "b.example"}
	first, err := h.k.provider.Provide(t.Context(), byMe, env(policy(both, secret)), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want *berth.NetworkPolicy
		same bool
	}{
		"no policy":         {nil, true},
		"the same":          {policy(both, secret), true},
		"disabled":          {&berth.NetworkPolicy{Type: networkDisabled}, false},
		"open":              {&berth.NetworkPolicy{Type: networkOpen}, false},
		"fewer domains":     {policy(both[:1], secret), false},
		"another domain":    {policy([]string{"a.example", "c.example"}, secret), false},
		"no secret":         {policy(both), false},
		"another value":     {changed(func(s *berth.DomainSecret) { s.Value = "value-2" }), false},
		"another name":      {changed(func(s *berth.DomainSecret) { s.Name = "KEY_2" }), false},
		"at another domain": {changed(func(s *berth.DomainSecret) { s.Domain = "b.example" }), false},
		"one secret more": {policy(both, secret,
			berth.DomainSecret{Domain: "b.example", Name: "B", Value: "value-2"}), false},
	} {
		got, err := h.k.provider.Provide(t.Context(), byMe, env(c.want), first)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if (got == first) != c.same {
			t.Errorf("%s: got the same container: %v, want %v", name, got == first, c.same)
		}
		if body, err := h.k.Get(t.Context(), mine, got); err != nil || c.want != nil &&
			body.NetworkPolicy.Type != c.want.Type || len(body.NetworkPolicy.DomainSecrets) > 0 {
			t.Errorf("%s: the container has %+v, %v", name, body, err)
		}
	}
}

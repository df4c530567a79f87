package container

import (
	"errors"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/sandbox"
)

// A routedDriver reports that its guests can make routes.
type routedDriver struct{ sandbox.Driver }

func (routedDriver) Features() sandbox.Features { return sandbox.Features{Routes: true} }

// TestAddressPolicies checks which addresses a policy may contain, for the operator's rules.
func TestAddressPolicies(t *testing.T) {
	rules := func(list ...string) (out []egress.Rule) {
		for _, s := range list {
			r, err := egress.ParseRule(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
		return out
	}
	for _, c := range []struct {
		allowed, private []egress.Rule
		domain           string
		want             bool
	}{
		{nil, nil, "8.8.8.8", true},
		{nil, nil, "8.8.8.8:53/udp", true},
		{nil, nil, "0.0.0.0/0:443", true}, // covers its public addresses
		{nil, nil, "10.0.0.1", false},
		{nil, nil, "127.0.0.1:80", false},
		{nil, nil, "169.254.169.254", false},
		{nil, nil, "[::ffff:10.0.0.1]:80", false},
		{nil, rules("10.0.0.0/8"), "10.1.0.0/16:5432", true},
		{nil, rules("10.0.0.0/8"), "11.0.0.0/8:5432", true},
		{nil, rules("10.1.0.0/16"), "10.0.0.0/8:5432", false},
		{nil, rules("169.254.0.0/16"), "169.254.169.254:80", false},
		{nil, rules("169.254.169.254:80"), "169.254.169.254:80", true},
		{nil, rules("*"), "10.0.0.1", false},
		{rules("*"), nil, "8.8.8.8", true},
		{rules("*.example.com"), nil, "8.8.8.8", false},
		{rules("8.8.8.0/24:53/udp"), nil, "8.8.8.8:53/udp", true},
		{rules("8.8.8.0/24:53/udp"), nil, "8.8.8.8:53", false},
		{rules(), rules("10.0.0.0/8"), "10.0.0.1", true},
	} {
		ns := &networks{opts: &Options{Driver: routedDriver{},
			Network: NetworkOptions{Allowed: c.allowed, Private: c.private}}}
		if c.allowed != nil && len(c.allowed) == 0 {
			ns.opts.Network.Allowed = []egress.Rule{}
		}
		_, err := ns.parse("cntr_1", &berth.NetworkPolicy{Type: networkAllowlist, AllowedDomains: []string{c.domain}},
			nil)
		if (err == nil) != c.want {
			t.Errorf("%s, with %v allowed and %v private: got %v", c.domain, c.allowed, c.private, err)
		}
		if e, ok := errors.AsType[*berth.Error](err); err != nil &&
			(!ok || e.Param != "network_policy.allowed_domains[0]") {
			t.Errorf("%s: got %v", c.domain, err)
		}
	}
	ns := &networks{opts: &Options{Driver: newDriver(t)}}
	if _, err := ns.parse("cntr_1", &berth.NetworkPolicy{Type: networkAllowlist, AllowedDomains: []string{"8.8.8.8"}},
		nil); err == nil {
		t.Error("a driver without routes accepts an address")
	}
}

// TestDeniedAddresses checks which addresses an open policy may deny.
func TestDeniedAddresses(t *testing.T) {
	ns := &networks{opts: &Options{Driver: routedDriver{}}}
	for address, want := range map[string]string{"198.51.100.7": "198.51.100.7/32",
		"198.51.100.7/24": "198.51.100.0/24", "::ffff:198.51.100.7": "198.51.100.7/32",
		"2001:db8::/32": "2001:db8::/32",
		"example.com":   "", "198.51.100.7:443": "", "::ffff:0:0/96": "", "fe80::1%eth0": "", "": ""} {
		n, err := ns.parse("cntr_1", &berth.NetworkPolicy{Type: networkOpen,
			AllowedDomains: []string{"api.example.com"}, Denied: []string{address}}, nil)
		got := ""
		if err == nil {
			got = n.access.policy.Denied[0].String()
		}
		if e, ok := errors.AsType[*berth.Error](err); got != want || err != nil &&
			(!ok || e.Param != "network_policy.denied_addresses[0]") {
			t.Errorf("%s: got %q, %v, want %q", address, got, err, want)
		}
	}
	if _, err := ns.parse("cntr_1", &berth.NetworkPolicy{Type: networkAllowlist, AllowedDomains: []string{"a.example"},
		Denied: []string{"198.51.100.7"}}, nil); err == nil {
		t.Error("an allowlist ignores what it denies")
	}
	want := &berth.NetworkPolicy{Type: networkOpen, Denied: []string{"198.51.100.7"}}
	saved := withoutSecrets(want)
	s := &instance{}
	s.policy.present = &saved
	if !s.accepts(want) || s.accepts(&berth.NetworkPolicy{Type: networkOpen}) {
		t.Error("a policy that denies addresses counts as one that does not")
	}
}

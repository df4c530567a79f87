package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func policy(t testing.TB, open bool, rules ...string) *Policy {
	t.Helper()
	p := &Policy{Open: open}
	for _, s := range rules {
		private := strings.HasPrefix(s, "private ")
		r, err := ParseRule(strings.TrimPrefix(s, "private "))
		if err != nil {
			t.Fatal(err)
		}
		r.Private = private
		p.Rules = append(p.Rules, r)
	}
	return p
}

func TestDecide(t *testing.T) {
	p := policy(t, false, "example.com", "*.pypi.org", "private db.internal:5432", "10.1.0.0/16:443", "[fd12::7]:8080", "[::/0]:9", "0.0.0.0/0:9")
	for _, c := range []struct {
		host string
		port int
		want bool
	}{
		{"example.com", 443, true},
		{"EXAMPLE.com.", 80, true},
		{"example.com", 22, false},
		{"www.example.com", 443, false},
		{"files.pypi.org", 443, true},
		{"a.b.pypi.org", 443, true},
		{"pypi.org", 443, false},
		{".pypi.org", 443, false},
		{"evilpypi.org", 443, false},
		{"pypi.org.evil.com", 443, false},
		{"db.internal", 5432, true},
		{"db.internal", 443, false},
		{"10.1.2.3", 443, true},
		{"10.1.2.3", 80, false},
		{"::ffff:10.1.2.3", 443, true},
		{"[fd12::7]", 8080, true},
		{"10.2.0.1", 443, false},
		{"93.184.216.34", 443, false},
		{"169.254.169.254", 9, false},
		{"fd00:ec2::254", 9, false},
		{"::ffff:169.254.169.254", 9, false},
		{"fe80::1", 9, false},
		{"224.0.0.1", 9, false},
		{"0.0.0.0", 9, false},
		{"8.8.8.8", 9, true}, // as 0.0.0.0/0 says
		{"127.1", 9, false},
		{"0x7f000001", 9, false},
		{"2130706433", 9, false},
		{"example.com\x00.evil.com", 443, false},
		{"example.com/", 443, false},
		{"user@example.com", 443, false},
		{"exаmple.com", 443, false}, // a Cyrillic letter
		{"", 443, false},
		{"example.com", 0, false},
		{"example.com", 65536, false},
	} {
		if d := Decide(p, Target{c.host, c.port}); d.Allow != c.want || d.Reason == "" {
			t.Errorf("%s:%d: got %+v, want %v", c.host, c.port, d, c.want)
		}
	}
	if d := Decide(&Policy{}, Target{"example.com", 443}); d.Allow {
		t.Error("the zero policy allows something")
	}
	open := policy(t, true)
	for target, want := range map[Target]bool{{"any.example", 443}: true, {"any.example", 25}: false, {"8.8.8.8", 443}: false} {
		if d := Decide(open, target); d.Allow != want {
			t.Errorf("open, %s: got %+v", target, d)
		}
	}
}

func TestRules(t *testing.T) {
	for _, s := range []string{"a.b:0", "a.b:70000", "a.b:x", "10.0.0.1/8", "*.*.a", "a*.b", "http://a.b", "a..b", "-a.b", "*.", "1.2.3", "a b", ""} {
		if r, err := ParseRule(s); err == nil {
			t.Errorf("%q is taken for %+v", s, r)
		}
	}
	for s, want := range map[string]string{"Example.COM.": "example.com", "*.A.b": "*.a.b", "a.b:81": "a.b:81", "10.0.0.0/8": "10.0.0.0/8", "::1": "::1/128", "*": "*"} {
		if r, err := ParseRule(s); err != nil || r.String() != want {
			t.Errorf("%q: got %s, %v, want %s", s, r, err, want)
		}
	}
}

func TestMayDial(t *testing.T) {
	p := policy(t, false, "private db.internal:5432", "127.0.0.1:6379")
	plain, private := Decision{Allow: true}, Decision{Allow: true, Private: true}
	for addr, want := range map[string][2]bool{ // of a plain name, of a private one
		"93.184.216.34": {true, true}, "2606:2800:220:1::1": {true, true},
		"10.0.0.1": {false, true}, "192.168.1.1": {false, true}, "172.16.0.1": {false, true}, "100.64.0.1": {false, true}, "fd12::1": {false, true},
		"203.0.113.1": {false, true}, "::ffff:10.0.0.1": {false, true}, "64:ff9b::a00:1": {false, true}, "2002:a00:1::": {false, true},
		"127.0.0.1": {false, false}, "::1": {false, false}, "169.254.169.254": {false, false}, "::ffff:169.254.169.254": {false, false},
		"fe80::1%eth0": {false, false}, "0.0.0.0": {false, false}, "::": {false, false}, "224.0.0.1": {false, false}, "ff02::1": {false, false},
	} {
		a := netip.MustParseAddr(addr)
		if got := [2]bool{p.mayDial(plain, a, 5432), p.mayDial(private, a, 5432)}; got != want {
			t.Errorf("%s: got %v, want %v", addr, got, want)
		}
	}
	if !p.mayDial(private, netip.MustParseAddr("127.0.0.1"), 6379) {
		t.Error("a rule for a loopback address does not open it")
	}
}

// A name that passes can be nothing but a name.
func FuzzCanonicalName(f *testing.F) {
	for _, s := range []string{"example.com", "a_b.c", "127.1", "x.0x7f", "xn--exmple-4nf.com", "a.", "..", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, ok := CanonicalName(s)
		if !ok {
			return
		}
		if again, ok := CanonicalName(name); !ok || again != name {
			t.Errorf("%q: %q is not canonical: %q", s, name, again)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Errorf("%q is an address", name)
		}
		if strings.ContainsAny(name, " /:@\\%?#\x00\r\n*") {
			t.Errorf("%q", name)
		}
	})
}

package egress

import (
	"io"
	"net/http"
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
	p := policy(t, false, "example.com", "*.pypi.org", "private db.internal:5432", "private 10.1.0.0/16:443",
		"private [fd12::7]:8080", "[::/0]:9", "0.0.0.0/0:9", "10.3.0.0/16:443", "private 169.254.169.254:80")
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
		{"8.8.8.8", 9, true},   // by 0.0.0.0/0
		{"10.2.0.1", 9, false}, // 0.0.0.0/0 does not allow private addresses
		{"127.0.0.1", 9, false},
		{"10.3.0.1", 443, false},       // not allowed by the operator
		{"169.254.169.254", 80, true},  // allowed by the operator
		{"::ffff:a9fe:a9fe", 80, true}, // the same
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
		if d := Decide(p, Target{Host: c.host, Port: c.port}); d.Allow != c.want || d.Reason == "" {
			t.Errorf("%s:%d: got %+v, want %v", c.host, c.port, d, c.want)
		}
	}
	if d := Decide(&Policy{}, Target{Host: "example.com", Port: 443}); d.Allow {
		t.Error("the zero policy allows something")
	}
	open := policy(t, true)
	for target, want := range map[string]bool{"any.example:443": true, "any.example:25": false, "8.8.8.8:443": true,
		"8.8.8.8:53": false, "[2606:4700::1]:80": true,
		"10.0.0.1:443": false, "127.0.0.1:80": false, "[::ffff:127.0.0.1]:80": false, "169.254.169.254:80": false,
		"0.0.0.0:80": false, "[fe80::1]:80": false, "100.64.0.1:443": false} {
		at, _ := parseTarget(target)
		if d := Decide(open, at); d.Allow != want {
			t.Errorf("open, %s: got %+v", target, d)
		}
	}
}

// An open policy denies addresses by number and as what a name leads to. What a rule allows is not denied.
func TestDenied(t *testing.T) {
	p := policy(t, true, "api.example.com", "93.184.216.35:443")
	for _, s := range []string{"93.184.216.0/24", "2606:2800::/32"} {
		p.Denied = append(p.Denied, netip.MustParsePrefix(s))
	}
	for target, want := range map[string]bool{"93.184.216.34:443": false, "[::ffff:93.184.216.34]:443": false,
		"[2606:2800::1]:80": false, "93.184.217.1:443": true,
		"93.184.216.35:443": true, "any.example:443": true} {
		at, _ := parseTarget(target)
		if d := Decide(p, at); d.Allow != want {
			t.Errorf("%s: got %+v, want %v", target, d, want)
		}
	}
	w := newWorld(t, p)
	addr, _ := serve(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })
	w.host("denied.example", "93.184.216.34", 80, addr)
	w.host("both.example", "93.184.216.34", 80, addr)
	w.host("both.example", "93.184.217.34", 80, addr)
	w.host("mapped.example", "::ffff:93.184.216.34", 80, addr)
	w.host("api.example.com", "93.184.216.34", 80, addr)
	c := w.httpClient(nil)
	for name, want := range map[string]string{"denied.example": "no address that may be dialled",
		"mapped.example": "no address that may be dialled", "both.example": "here", "api.example.com": "here"} {
		if _, body := get(t, c, "http://"+name+"/"); !strings.Contains(body, want) && !strings.Contains(w.last().Reason,
			want) {
			t.Errorf("%s: got %q, %+v, want %q", name, body, w.last(), want)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	dialled := map[string]int{}
	for _, a := range w.dialled {
		dialled[a.Addr().String()]++
	}
	if dialled["93.184.216.34"] != 1 || dialled["93.184.217.34"] != 1 {
		t.Errorf("dialled %v", dialled)
	}
}

func TestDecideDatagrams(t *testing.T) {
	p := policy(t, true, "8.8.8.0/24:53/udp", "8.8.4.4:443", "private [fd12::7]:514/udp", "db.internal:5432")
	for target, want := range map[string]bool{"8.8.8.8:53/udp": true, "8.8.8.8:53": false, "8.8.4.4:443": true,
		"8.8.4.4:443/udp": false, "1.1.1.1:443/udp": false,
		"[fd12::7]:514/udp": true, "[fd12::8]:514/udp": false, "db.internal:5432/udp": false,
		"example.com:443/udp": false} {
		s, udp := strings.CutSuffix(target, "/udp")
		at, _ := parseTarget(s)
		at.UDP = udp
		if d := Decide(p, at); d.Allow != want {
			t.Errorf("%s: got %+v, want %v", at, d, want)
		}
	}
}

// Covers accepts only what the operator's rules open.
func TestCovers(t *testing.T) {
	for _, c := range []struct {
		rules, rule string
		want        bool
	}{
		{"10.0.0.0/8", "10.1.0.0/16:5432", true},
		{"10.0.0.0/8", "10.1.0.0/16:53/udp", true},
		{"10.0.0.0/8:53", "10.1.0.0/16:53/udp", false},
		{"10.0.0.0/8:53/udp", "10.1.0.0/16:53", false},
		{"10.1.0.0/16", "10.0.0.0/8", false},
		{"10.0.0.0/8", "11.0.0.1", false},
		{"0.0.0.0/0", "169.254.169.254", false},
		{"169.254.169.254", "169.254.169.254:80", true},
		{"fd12::/16", "[fd12::7]:80", true},
		{"::/0", "[fd00:ec2::254]:80", false},
		{"*", "10.0.0.1", false},
		{"10.0.0.0/8", "example.com", false},
		{"*.example.com", "*.a.example.com", true},
		{"*.example.com", "example.com", false},
		{"example.com:5432", "example.com", false},
	} {
		if got := Covers(policy(t, false, c.rules).Rules, policy(t, false, c.rule).Rules[0]); got != c.want {
			t.Errorf("%s covers %s: got %v, want %v", c.rules, c.rule, got, c.want)
		}
	}
}

func TestRules(t *testing.T) {
	for _, s := range []string{"a.b:0", "a.b:70000", "a.b:x", "10.0.0.1/8", "*.*.a", "a*.b", "http://a.b", "a..b",
		"-a.b", "*.", "1.2.3", "a b", "", "a.b:53/udp", "1.2.3.4/udp", "1.2.3.4:53/tcp", "::ffff:0:0/96",
		"fe80::1%eth0"} {
		if r, err := ParseRule(s); err == nil {
			t.Errorf("ParseRule(%q) = %+v, want an error", s, r)
		}
	}
	for s, want := range map[string]string{"Example.COM.": "example.com", "*.A.b": "*.a.b", "a.b:81": "a.b:81",
		"10.0.0.0/8": "10.0.0.0/8", "::1": "::1", "*": "*",
		"10.0.0.0/8:53/udp": "10.0.0.0/8:53/udp", "[fd12::]:80": "[fd12::]:80", "[fd12::/16]:80": "[fd12::/16]:80",
		"::ffff:1.2.3.4": "1.2.3.4"} {
		if r, err := ParseRule(s); err != nil || r.String() != want {
			t.Errorf("%q: got %s, %v, want %s", s, r, err, want)
		}
	}
}

func TestMayDial(t *testing.T) {
	p := policy(t, false, "private db.internal:5432", "private 127.0.0.1:6379")
	db := Target{Host: "db.internal", Port: 5432}
	plain, private := Decision{Allow: true}, Decision{Allow: true, Private: true}
	for addr, want := range map[string][2]bool{ // for a plain rule, for a private rule
		"93.184.216.34": {true, true}, "2606:2800:220:1::1": {true, true},
		"10.0.0.1": {false, true}, "192.168.1.1": {false, true}, "172.16.0.1": {false, true},
		"100.64.0.1": {false, true}, "fd12::1": {false, true},
		"203.0.113.1": {false, true}, "::ffff:10.0.0.1": {false, true}, "64:ff9b::a00:1": {false, true},
		"2002:a00:1::": {false, true},
		"127.0.0.1":    {false, false}, "::1": {false, false}, "169.254.169.254": {false, false},
		"::ffff:169.254.169.254": {false, false},
		"fe80::1%eth0":           {false, false}, "0.0.0.0": {false, false}, "::": {false, false},
		"224.0.0.1": {false, false}, "ff02::1": {false, false},
	} {
		a := netip.MustParseAddr(addr)
		if got := [2]bool{p.mayDial(plain, db, a), p.mayDial(private, db, a)}; got != want {
			t.Errorf("%s: got %v, want %v", addr, got, want)
		}
	}
	if !p.mayDial(private, Target{Host: "redis.internal", Port: 6379}, netip.MustParseAddr("127.0.0.1")) {
		t.Error("a rule for a loopback address does not allow it")
	}
}

// FuzzCanonicalName checks that a canonical name is not also an address.
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

package preview

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/idna"
)

// dnsName matches valid host names.
var dnsName = regexp.MustCompile(`^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$`)

// number matches a last label that makes clients read the whole host as an IPv4
// address (WHATWG URL, "ends in a number"): 127.1, 0x7f.1 and 2130706433 are 127.0.0.1.
var number = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)

// parseHost parses the host of a URL according to WHATWG's URL standard. It returns the host
// in a spelling that all clients interpret alike, or an error if clients could interpret the
// host in different ways.
func parseHost(u *url.URL) (host, error) {
	name := u.Hostname() // unescaped by url.Parse
	if strings.HasPrefix(u.Host, "[") {
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return host{}, fmt.Errorf("not an IPv6 address: %q", name)
		}
		return host{addr.String(), addr}, nil
	}
	name = strings.ToLower(name)
	if !dnsName.MatchString(name) || strings.Contains(name, "xn--") {
		ascii, err := toASCII(name)
		if err != nil {
			return host{}, err
		}
		name = ascii
	}
	if len(name) > 253 {
		return host{}, fmt.Errorf("the host name is too long")
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; number.MatchString(last) {
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is4() {
			return host{}, fmt.Errorf("not an IPv4 address of four decimal numbers: %q", name)
		}
		return host{addr.String(), addr}, nil
	}
	return host{name: name}, nil
}

// toASCII converts an internationalized name to its ASCII form.
func toASCII(name string) (string, error) {
	ascii, err := idna.Lookup.ToASCII(name)
	if err != nil {
		return "", fmt.Errorf("convert host name to ASCII: %w", err)
	}
	ascii = strings.TrimSuffix(ascii, ".")
	if !dnsName.MatchString(ascii) {
		return "", fmt.Errorf("not a DNS name: %q", ascii)
	}
	for label := range strings.SplitSeq(ascii, ".") {
		// Clients disagree on labels that need no encoding, such as xn--localhost-.
		if code, ok := strings.CutPrefix(label, "xn--"); ok && (code == "" || strings.HasSuffix(code, "-") ||
			decodesToASCII(label)) {
			return "", fmt.Errorf("not an internationalized name: %q", label)
		}
	}
	return ascii, nil
}

func decodesToASCII(label string) bool {
	text, err := idna.Punycode.ToUnicode(label)
	return err != nil || !strings.ContainsFunc(text, func(c rune) bool { return c >= 0x80 })
}

package preview

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/idna"
)

// dnsName matches what a name of a host may consist of.
var dnsName = regexp.MustCompile(`^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$`)

// number matches a last label that makes clients read the whole host as an IPv4
// address (WHATWG URL, "ends in a number"): 127.1, 0x7f.1 and 2130706433 are 127.0.0.1.
var number = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)

// parseHost reads the host of a URL as clients do that follow WHATWG's URL standard, and
// returns it in the one spelling that all clients read alike. It returns an error for a
// host that has several readings.
func parseHost(u *url.URL) (host, error) {
	name := u.Hostname() // which url.Parse has unescaped
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
		return host{}, fmt.Errorf("the name of the host is too long")
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; number.MatchString(last) {
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is4() {
			return host{}, fmt.Errorf("not an IPv4 address in four decimal numbers: %q", name)
		}
		return host{addr.String(), addr}, nil
	}
	return host{name: name}, nil
}

// toASCII maps the characters of a name to those of the DNS.
func toASCII(name string) (string, error) {
	ascii, err := idna.Lookup.ToASCII(name)
	if err != nil {
		return "", fmt.Errorf("read the name of the host: %w", err)
	}
	ascii = strings.TrimSuffix(ascii, ".")
	if !dnsName.MatchString(ascii) {
		return "", fmt.Errorf("not a name of the DNS: %q", ascii)
	}
	for label := range strings.SplitSeq(ascii, ".") {
		// Some clients decode a label that needed no encoding, xn--localhost-, to
		// another name than others do.
		if code, ok := strings.CutPrefix(label, "xn--"); ok && (code == "" || strings.HasSuffix(code, "-") || decodesToASCII(label)) {
			return "", fmt.Errorf("not an internationalized name: %q", label)
		}
	}
	return ascii, nil
}

func decodesToASCII(label string) bool {
	text, err := idna.Punycode.ToUnicode(label)
	return err != nil || !strings.ContainsFunc(text, func(c rune) bool { return c >= 0x80 })
}

package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/berth-run/berth"
)

// Preview configures previews of containers' ports.
type Preview struct {
	// Domain gives each port a host name: PORT-CONTAINER.DOMAIN. All names below it must
	// resolve to this server, and to nothing else. Default: no domain.
	Domain string `yaml:"domain"`
}

// domainPattern matches a domain of previews. A port's name has 59 characters, a full name at
// most 253.
var domainPattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// checkPreview converts the domain to lower case and checks it.
func (c *Config) checkPreview() error {
	c.Preview.Domain = strings.ToLower(c.Preview.Domain)
	if d := c.Preview.Domain; d != "" && (len(d) > 253-60 || !domainPattern.MatchString(d)) {
		return fmt.Errorf("preview.domain: %q is not a domain such as preview.example.net", d)
	}
	return nil
}

// sharedSite returns a warning if pages of sandboxes and a name of this server are on one
// site: browsers let such pages set cookies for the server's name, and send it some requests
// as if they were its own. Names that only a proxy knows are not known here.
func (c *Config) sharedSite() (found []string) {
	domain := c.Preview.Domain
	site, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if domain == "" || err != nil { // each host below a public suffix is a site of its own
		return nil
	}
	for _, name := range c.servedNames() {
		if name == domain || strings.HasSuffix(name, "."+domain) {
			continue // the previews'
		}
		if other, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil && other == site {
			found = append(found,
				fmt.Sprintf(
					"%sshares the site %s with this server's name %s, so a page in a sandbox can set cookies for it, "+
						"the console's over plain HTTP included: use a separate domain ("+berth.DocsURL+"observe.md#a-host-for-each-port)",
					c.At("preview.domain"), site, name))
		}
	}
	return found
}

// servedNames returns the names of the server's certificates.
func (c *Config) servedNames() []string {
	names := slices.Clone(c.Server.TLS.ACME.Domains)
	if c.Server.TLS.CertFile != "" {
		if pair, err := ReadCertificate(c.Server.TLS); err == nil { // Verify reports the error
			names = append(names, pair.Leaf.DNSNames...)
		}
	}
	for i, name := range names {
		names[i] = strings.ToLower(strings.TrimPrefix(name, "*."))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

package server

import (
	"fmt"
	"regexp"
	"strings"
)

// PreviewConfig configures how ports of containers are shown.
type PreviewConfig struct {
	// Domain is one below which each port has a host of its own: PORT-CONTAINER.DOMAIN.
	// All names below it must lead to this server, and to nothing else. Default: none.
	Domain string `yaml:"domain"`
}

// domainPattern is what a domain of previews may be. The name of a port is 59
// characters long, and the whole may have 253.
var domainPattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// checkPreview converts the domain to lower case and checks it.
func (c *Config) checkPreview() error {
	c.Preview.Domain = strings.ToLower(c.Preview.Domain)
	if d := c.Preview.Domain; d != "" && (len(d) > 253-60 || !domainPattern.MatchString(d)) {
		return fmt.Errorf("preview.domain: %q is not a domain such as preview.example.com", d)
	}
	return nil
}

// SetPreviewDomain sets the domain of previews in place of the configured one.
func (c *Config) SetPreviewDomain(domain string) error {
	c.Preview.Domain = domain
	return c.checkPreview()
}

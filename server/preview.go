package server

import (
	"fmt"
	"regexp"
	"strings"
)

// PreviewConfig configures previews of containers' ports.
type PreviewConfig struct {
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
		return fmt.Errorf("preview.domain: %q is not a domain such as preview.example.com", d)
	}
	return nil
}

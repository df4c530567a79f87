package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// CORS configures which web pages may use the API from a browser.
type CORS struct {
	// Origins are the origins of pages, such as https://app.example, or "*" alone for all
	// pages. They need an API key like every client. Default: none.
	Origins []string `yaml:"origins"`
}

// checkCORS converts origins to the form in which browsers send them, and checks them.
func (c *Config) checkCORS() error {
	var wrong []error
	for i, origin := range c.CORS.Origins {
		if origin == "*" {
			if len(c.CORS.Origins) > 1 {
				return fmt.Errorf("cors.origins: \"*\" must be alone, because it includes all others")
			}
			continue
		}
		u, err := url.Parse(strings.ToLower(origin))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.Contains(u.Host,
			"*") || u.Scheme+"://"+u.Host != strings.ToLower(origin) {
			wrong = append(wrong, fmt.Errorf("cors.origins[%d]: %q is not an origin such as https://app.example", i,
				origin))
			continue
		}
		if port := u.Port(); u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
			u.Host = strings.TrimSuffix(u.Host, ":"+port) // as browsers do
		}
		c.CORS.Origins[i] = u.Scheme + "://" + u.Host
	}
	return errors.Join(wrong...)
}

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// Pulls configures the images that projects pull for the templates that they build, and how long such templates are
// kept.
type Pulls struct {
	Mirror Mirror `yaml:"mirror"`

	// Idle is how long a template that a project built is kept at least after its last use, when the quota of the
	// project or the disk is full. Default: 0, which keeps templates until they are deleted
	Idle time.Duration `yaml:"idle"`
}

// A Mirror is a pull-through mirror of registries.
type Mirror struct {
	// URL is the address of the mirror, such as https://mirror.example.com or
	// https://mirror.example.com/docker-hub. HTTP is for a mirror on this machine. Default: none
	URL string `yaml:"url"`

	Registries  []string `yaml:"registries"`   // that it mirrors; "*" is all. Default: docker.io
	Username    string   `yaml:"username"`     // for the mirror. Default: none
	PasswordEnv string   `yaml:"password_env"` // name of the environment variable with the password
	Only        bool     `yaml:"only"`         // never pull from the registries themselves. Default: false
}

// Password returns the password for the mirror, or "". It returns an error if its environment variable is not set.
func (m *Mirror) Password() (string, error) {
	if m.PasswordEnv == "" {
		return "", nil
	}
	password := strings.TrimSpace(os.Getenv(m.PasswordEnv))
	if password == "" {
		return "", fmt.Errorf("images.mirror.password_env: %s is not set in the environment", m.PasswordEnv)
	}
	return password, nil
}

// check checks what does not depend on the environment.
func (m *Mirror) check() error {
	if m.URL == "" {
		if m.Only || m.Username != "" || m.PasswordEnv != "" {
			return errors.New("images.mirror: it has no effect without images.mirror.url, the address of the mirror")
		}
		return nil
	}
	u, err := url.Parse(m.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("images.mirror.url: %q is not a URL such as https://mirror.example.com", m.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("images.mirror.url: %q has more than a host and a path", u.Redacted())
	case u.Scheme == "http" && !onThisMachine(u.Hostname()):
		return fmt.Errorf("images.mirror.url: %q must use https, because it is not on this machine", m.URL)
	case (m.Username == "") != (m.PasswordEnv == ""):
		return errors.New("images.mirror: username and password_env need each other")
	}
	return nil
}

// onThisMachine reports whether a host is a loopback address.
func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

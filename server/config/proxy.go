package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress/allow"
)

// A Proxy is the way out of the network for what the server sends on its own and for containers: to models, pages, MCP
// servers, webhooks, registries, the identity provider, authorities of certificates and collectors of traces.
type Proxy struct {
	ProxyServer `yaml:",inline"`

	// Projects have proxies of their own, by project id, for their requests. The keys are those of proxy, except
	// projects.
	Projects map[string]ProxyServer `yaml:"projects"`
}

// A ProxyServer is a proxy and the hosts that are reached without it.
type ProxyServer struct {
	// URL is http://proxy.example.com:3128, https://…, socks5://… or socks5s://… (SOCKS5 over TLS), or none. Default:
	// none; then HTTP_PROXY, HTTPS_PROXY and NO_PROXY are used for requests that no client caused.
	URL string `yaml:"url"`

	Username     string `yaml:"username"`      // Default: the proxy wants no credentials
	PasswordEnv  string `yaml:"password_env"`  // name of the environment variable with the password, or:
	PasswordFile string `yaml:"password_file"` // path of a file with the password

	// CAFile has authorities in PEM that are trusted besides those of this machine: for the proxy's own certificate,
	// and for those of hosts if the proxy inspects TLS. Containers trust those of proxy.ca_file too.
	CAFile string `yaml:"ca_file"`

	// NoProxy are hosts that are reached without the proxy: example.com with all names below it, .example.com for the
	// names below it only, addresses and prefixes, each with or without a port. Loopback and link-local addresses are
	// never reached through it.
	NoProxy []string `yaml:"no_proxy"`
}

// proxyNone is the URL for no proxy.
const proxyNone = "none"

// Enabled reports whether there is a proxy.
func (p ProxyServer) Enabled() bool { return p.URL != "" && p.URL != proxyNone }

// Enabled reports whether the server or a project has a proxy.
func (p Proxy) Enabled() bool {
	return p.ProxyServer.Enabled() || slices.ContainsFunc(slices.Collect(maps.Values(p.Projects)), ProxyServer.Enabled)
}

// User returns the credentials, or nil if there are none. It reads the password.
func (p ProxyServer) User() (*url.Userinfo, error) {
	password := ""
	switch {
	case p.PasswordEnv != "":
		if password = strings.TrimSpace(os.Getenv(p.PasswordEnv)); password == "" {
			return nil, fmt.Errorf(".password_env: %s is not set in the environment", p.PasswordEnv)
		}
	case p.PasswordFile != "":
		text, err := os.ReadFile(p.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf(".password_file: %w", err)
		}
		if password = strings.TrimSpace(string(text)); password == "" {
			return nil, fmt.Errorf(".password_file: %s is empty", p.PasswordFile)
		}
	case p.Username == "":
		return nil, nil
	}
	return url.UserPassword(p.Username, password), nil
}

// checkAll checks what the rules of single keys cannot.
func (p Proxy) checkAll() error {
	wrong := []error{p.check("proxy")}
	for _, id := range slices.Sorted(maps.Keys(p.Projects)) {
		at := "proxy.projects." + id
		if berth.ProjectID(id).Valid() != nil {
			wrong = append(wrong, fmt.Errorf("%s: %q is no id of a project, such as %s", at, id, berth.DefaultProject))
		}
		own := p.Projects[id]
		if own.URL == "" {
			wrong = append(wrong, fmt.Errorf("%s.url: it is missing: name a proxy, or none", at))
			continue
		}
		wrong = append(wrong, own.check(at))
	}
	return errors.Join(wrong...)
}

func (p ProxyServer) check(at string) error {
	if !p.Enabled() {
		for key, set := range map[string]bool{"username": p.Username != "", "password_env": p.PasswordEnv != "",
			"password_file": p.PasswordFile != "", "no_proxy": len(p.NoProxy) > 0} {
			if set {
				return fmt.Errorf("%s.%s: it has no effect without %s.url", at, key, at)
			}
		}
		return nil
	}
	var wrong []error
	u, err := url.Parse(p.URL)
	switch {
	case err == nil && u.User != nil:
		// not quoted: it may hold a password
		wrong = append(wrong, fmt.Errorf("%s.url: write the credentials into username and password_env", at))
	case err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" ||
		!slices.Contains([]string{"http", "https", "socks5", "socks5h", "socks5s"}, u.Scheme):
		wrong = append(wrong, fmt.Errorf("%s.url: it is not the address of a proxy, such as "+
			"http://proxy.example.com:3128, https://…, socks5://… or socks5s://… (SOCKS5 over TLS)", at))
	}
	if p.PasswordEnv != "" && p.PasswordFile != "" {
		wrong = append(wrong, fmt.Errorf("%s has both password_env and password_file", at))
	}
	if p.Username == "" && (p.PasswordEnv != "" || p.PasswordFile != "") {
		wrong = append(wrong, fmt.Errorf("%s.username: it is missing: the name to which the password belongs", at))
	}
	for i, host := range p.NoProxy {
		name := strings.TrimPrefix(host, ".")
		if r, err := allow.Parse(name); err != nil || r.UDP || strings.HasPrefix(name, "*.") {
			wrong = append(wrong, fmt.Errorf("%s.no_proxy[%d]: %q is not a name, .name, address or prefix", at, i, host))
		}
	}
	return errors.Join(wrong...)
}

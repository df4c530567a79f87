// Package outbound opens the proxies of a configuration, through which a server reaches the outside.
package outbound

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/server/config"
)

// Open returns the proxies of a configuration, or nil if it has none. It contacts none of them.
func Open(c *config.Config) (*proxy.Selector, error) {
	if !c.Proxy.Enabled() && c.Proxy.CAFile == "" {
		return nil, nil
	}
	all := &proxy.Selector{Projects: map[berth.ProjectID]*proxy.Rules{}}
	pems, err := readPEM(nil, "proxy", c.Proxy.ProxyServer)
	if err != nil {
		return nil, c.In(err)
	}
	if all.Server, err = rulesOf(c.Proxy.ProxyServer, pems); err != nil {
		return nil, c.In(fmt.Errorf("proxy%w", err))
	}
	every := pems
	for id, p := range c.Proxy.Projects {
		at := "proxy.projects." + id
		own, err := readPEM(pems, at, p)
		if err != nil {
			return nil, c.In(err)
		}
		if all.Projects[berth.ProjectID(id)], err = rulesOf(p, own); err != nil {
			return nil, c.In(fmt.Errorf("%s%w", at, err))
		}
		if p.CAFile != "" {
			every = append(bytes.Clone(every), own[len(pems):]...)
		}
	}
	if len(every) > 0 {
		all.Roots = pool(every)
	}
	return all, nil
}

// Authorities returns the authorities of the server's proxy in PEM, or nil. Containers trust them.
func Authorities(c *config.Config) ([]byte, error) {
	pems, err := readPEM(nil, "proxy", c.Proxy.ProxyServer)
	return pems, c.In(err)
}

// readPEM appends the authorities of a proxy to others.
func readPEM(others []byte, at string, p config.ProxyServer) ([]byte, error) {
	if p.CAFile == "" {
		return others, nil
	}
	text, err := os.ReadFile(p.CAFile)
	if err != nil {
		return nil, fmt.Errorf("%s.ca_file: %w", at, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s.ca_file: %s contains no certificate", at, p.CAFile)
	}
	return append(append(bytes.Clone(others), '\n'), text...), nil
}

// pool returns the authorities of this machine and others.
func pool(pems []byte) *x509.CertPool {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(pems)
	return roots
}

// rulesOf returns the rules of a proxy. Its error continues the proxy's key.
func rulesOf(p config.ProxyServer, pems []byte) (*proxy.Rules, error) {
	if !p.Enabled() {
		return proxy.NewRules(nil, nil), nil
	}
	u, err := proxy.ParseURL(p.URL)
	if err != nil {
		return nil, fmt.Errorf(".url: %w", err)
	}
	if u.User, err = p.User(); err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(pems) > 0 {
		conf.RootCAs = pool(pems)
	}
	return proxy.NewRules(proxy.NewServer(u, conf, nil), p.NoProxy), nil
}

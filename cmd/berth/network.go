package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/sandbox"
)

// NetworkConfig bounds what containers may be allowed to reach.
type NetworkConfig struct {
	// Allowed are the names that a container's policy may name: "example.com",
	// "*.example.com", "db.example.com:5432", "*". Default: any. [] is none.
	Allowed []EgressRule `yaml:"allowed"`

	// Private are names whose addresses are not public. A policy may name them;
	// all other names that resolve to such addresses are refused. Default: none.
	Private []EgressRule `yaml:"private"`

	// TrustHost makes containers trust the certificate authorities of this
	// machine. Default: true.
	TrustHost *bool `yaml:"trust_host"`
}

// An EgressRule is written as egress.ParseRule reads it.
type EgressRule struct{ egress.Rule }

// UnmarshalYAML reads a rule.
func (r *EgressRule) UnmarshalYAML(n *yaml.Node) (err error) {
	if r.Rule, err = egress.ParseRule(n.Value); err == nil && r.Name == "" {
		err = errors.New("addresses cannot be reached, only names")
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

func (c *NetworkConfig) options() (sandbox.NetworkOptions, error) {
	var out sandbox.NetworkOptions
	if c.Allowed != nil {
		out.Allowed = rules(c.Allowed)
	}
	out.Private = rules(c.Private)
	var err error
	if c.TrustHost == nil || *c.TrustHost {
		out.Authorities, err = hostAuthorities()
	}
	return out, err
}

func rules(from []EgressRule) []egress.Rule {
	to := make([]egress.Rule, len(from))
	for i, r := range from {
		to[i] = r.Rule
	}
	return to
}

// bundles are where distributions keep the authorities that a machine trusts.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// hostAuthorities returns the certificates that this machine trusts, in PEM; none
// if it has none.
func hostAuthorities() ([]byte, error) {
	for _, path := range bundles {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return text, err
	}
	return nil, nil
}

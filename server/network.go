package server

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/egress"
)

// NetworkConfig limits what the network policies of containers may allow.
type NetworkConfig struct {
	// Allowed are the rules that a container's policy may use: "example.com", "*.example.com",
	// "db.example.com:5432", "203.0.113.0/24:22", "*". Default: anything public. [] allows
	// nothing.
	Allowed []EgressRule `yaml:"allowed"`

	// Private are names with private addresses, and private addresses, such as
	// "10.1.0.0/16:5432" or "[fd12::7]:53/udp", that a policy may name. All other names that
	// resolve to private addresses are refused. The address of a cloud's metadata service
	// must be listed exactly. Default: nothing.
	Private []EgressRule `yaml:"private"`

	// Connections bounds the connections and datagram exchanges of all containers together.
	// Default: a quarter of the files that the server may open.
	Connections int `yaml:"connections"`

	// TrustHost makes containers trust the certificate authorities of this
	// machine. Default: true.
	TrustHost *bool `yaml:"trust_host"`
}

// FetchConfig limits what the server itself downloads for a request, such as the file_url of an
// input_file.
type FetchConfig struct {
	// Allowed are the hosts, as in containers.network.allowed. Default: anything public.
	// [] allows nothing.
	Allowed []EgressRule `yaml:"allowed"`

	// Private are names with private addresses, and private addresses. Default: nothing.
	Private []EgressRule `yaml:"private"`
}

// MCPConfig limits the MCP servers that requests may name, and their calls.
type MCPConfig struct {
	// Allowed are the hosts of remote servers, as in containers.network.allowed: "mcp.example.com",
	// "*.example.com", "mcp.example.com:8443". Default: anything public. [] allows none.
	Allowed []EgressRule `yaml:"allowed"`

	// Private are names with private addresses, and private addresses. Default: nothing.
	Private []EgressRule `yaml:"private"`

	// Timeout bounds one call of a server's tool. Default: 2m.
	Timeout time.Duration `yaml:"timeout"`
}

// policyOf returns the policy for the server's own requests, or nil if nothing is allowed.
// allowed is nil for anything public.
func policyOf(allowed, private []EgressRule) *egress.Policy {
	p := &egress.Policy{Open: allowed == nil}
	for _, r := range rules(allowed) {
		if r.Name == "*" && len(r.Ports) == 0 {
			p.Open = true
			continue
		}
		p.Rules = append(p.Rules, r)
	}
	for _, r := range rules(private) {
		r.Private = true
		p.Rules = append(p.Rules, r)
	}
	if !p.Open && len(p.Rules) == 0 {
		return nil
	}
	return p
}

// An EgressRule is a rule in the form that egress.ParseRule parses.
type EgressRule struct{ egress.Rule }

// UnmarshalYAML parses a rule.
func (r *EgressRule) UnmarshalYAML(n *yaml.Node) (err error) {
	r.Rule, err = egress.ParseRule(n.Value)
	return err
}

func (c *NetworkConfig) options() (container.NetworkOptions, error) {
	var out container.NetworkOptions
	if c.Allowed != nil {
		out.Allowed = rules(c.Allowed)
	}
	out.Private = rules(c.Private)
	out.Slots = egress.NewSlots(cmp.Or(c.Connections, defaultEgress()))
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

// bundles are the files in which distributions store trusted certificate authorities.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// hostAuthorities returns the certificates that this machine trusts, in PEM, or nil if it has
// none.
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

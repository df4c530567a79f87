package config

import (
	"time"

	"github.com/berth-run/berth/egress/allow"
	"github.com/berth-run/berth/internal/nofile"
	"go.yaml.in/yaml/v3"
)

// Network limits what the network policies of containers may allow.
type Network struct {
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

// Fetch limits what the server itself downloads for a request, such as the file_url of an
// input_file.
type Fetch struct {
	// Allowed are the hosts, as in containers.network.allowed. Default: anything public.
	// [] allows nothing.
	Allowed []EgressRule `yaml:"allowed"`

	// Private are names with private addresses, and private addresses. Default: nothing.
	Private []EgressRule `yaml:"private"`
}

// MCP limits the MCP servers that requests may name, and their calls.
type MCP struct {
	// Allowed are the hosts of remote servers, as in containers.network.allowed: "mcp.example.com",
	// "*.example.com", "mcp.example.com:8443". Default: anything public. [] allows none.
	Allowed []EgressRule `yaml:"allowed"`

	// Private are names with private addresses, and private addresses. Default: nothing.
	Private []EgressRule `yaml:"private"`

	// Timeout bounds one call of a server's tool. Default: 2m.
	Timeout time.Duration `yaml:"timeout"`
}

// An EgressRule is a rule in the form that allow.Parse parses.
type EgressRule struct{ allow.Rule }

// UnmarshalYAML parses a rule.
func (r *EgressRule) UnmarshalYAML(n *yaml.Node) (err error) {
	r.Rule, err = allow.Parse(n.Value)
	return err
}

// DefaultEgress returns the default limit on connections from all containers.
func DefaultEgress() int { return max(min(nofile.Limit()/4, 1<<15), 8) }

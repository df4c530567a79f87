package config

import "time"

// OpenTerminal configures the containers of users of Open Terminal's API.
type OpenTerminal struct {
	Template string `yaml:"template"` // name or digest. Default: the default template
	Memory   string `yaml:"memory"`   // of a container: 1g, 4g, 16g or 64g. Default: 1g

	// Idle is the time without a request after which a container becomes a snapshot, from which the user's next
	// request starts one. Default: containers.idle
	Idle time.Duration `yaml:"idle"`

	// Hosts are the hosts that containers may reach, within containers.network: "pypi.org", "*.example.com". ["*"] is
	// any public host. Default: none.
	Hosts []string `yaml:"hosts"`

	Prompt string `yaml:"prompt"` // told to models about the computer. Default: a general description
}

package config

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
)

// Limits are the limits of a project: numbers, sizes such as 10g, or none for no limit.
// For a limit that is not set, the default of all projects applies, which is no limit unless
// configured.
type Limits struct {
	// for responses; other requests that change data have a second budget of this size
	RequestsPerMinute *Amount `yaml:"requests_per_minute"`
	TokensPerMinute   *Amount `yaml:"tokens_per_minute"` // input and output of models
	Responses         *Amount `yaml:"responses"`         // in progress at a time
	Containers        *Amount `yaml:"containers"`        // running at a time
	ContainerMinutes  *Amount `yaml:"container_minutes"` // of all containers per day (UTC)
	// bytes of all stored data: responses, conversations, files, snapshots, volumes …
	Storage   *Amount `yaml:"storage"`
	Snapshots *Amount `yaml:"snapshots"` // stored at a time
	// of models in a calendar month (UTC), in the currency of the prices, such as 2.50
	CostPerMonth *Money `yaml:"cost_per_month"`
	// Templates are the templates that containers may name besides the default one: names,
	// patterns such as py-*, digests. Default: all templates of the server.
	Templates []string `yaml:"templates"`
	// ShellEnvironment is where shells without an environment run commands: container, or
	// local, the client's machine. Default: shell.default_environment
	ShellEnvironment string `yaml:"shell_environment"`
}

// ForProject returns the limits of a project.
func (c Limits) ForProject() berth.Limits {
	return berth.Limits{RequestsPerMinute: (*int64)(c.RequestsPerMinute), TokensPerMinute: (*int64)(c.TokensPerMinute),
		Responses:  (*int64)(c.Responses),
		Containers: (*int64)(c.Containers), ContainerMinutes: (*int64)(c.ContainerMinutes),
		StorageBytes: (*int64)(c.Storage), Snapshots: (*int64)(c.Snapshots),
		CostPerMonth: (*berth.Amount)(c.CostPerMonth), Templates: c.Templates,
		ShellEnvironment: berth.DefaultEnvironment(c.ShellEnvironment)}
}

// An Amount is a number, a size such as 10g, or none.
type Amount int64

// NoLimit is the amount "none".
const NoLimit Amount = -1

// UnmarshalYAML parses 100, 10g or none.
func (a *Amount) UnmarshalYAML(n *yaml.Node) error {
	return a.Set(n.Value)
}

// Set implements pflag.Value, together with String and Type.
func (a *Amount) Set(text string) error {
	if text == "none" {
		*a = NoLimit
		return nil
	}
	number := strings.TrimRight(text, "kmgt")
	shift, ok := map[string]int{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[text[len(number):]]
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 0 || n > 1<<62>>shift {
		return fmt.Errorf("%q is not a number, a size such as 10g, or none", text)
	}
	*a = Amount(n << shift)
	return nil
}

func (a *Amount) String() string {
	if *a < 0 {
		return "none"
	}
	return strconv.FormatInt(int64(*a), 10)
}

// Type returns the name of the value in a command's help.
func (a *Amount) Type() string { return "amount" }

// Money is an amount of money in units of a currency, or none.
type Money berth.Amount

// UnmarshalYAML parses 50, 2.50 or none.
func (m *Money) UnmarshalYAML(n *yaml.Node) error {
	return m.Set(n.Value)
}

// Set implements pflag.Value, together with String and Type.
func (m *Money) Set(text string) error {
	if text == "none" {
		*m = -1
		return nil
	}
	a, err := berth.ParseAmount(text)
	if err != nil || a < 0 {
		return fmt.Errorf("%q is not an amount of money such as 2.50, or none", text)
	}
	*m = Money(a)
	return nil
}

func (m *Money) String() string {
	if *m < 0 {
		return "none"
	}
	return berth.Amount(*m).String()
}

// Type returns the name of the value in a command's help.
func (m *Money) Type() string { return "money" }

// Check returns an error if a limit is invalid.
func (c Limits) Check() error {
	for _, pattern := range c.Templates {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("templates: %q is not a name, a pattern of names, or a digest", pattern)
		}
	}
	switch berth.DefaultEnvironment(c.ShellEnvironment) {
	case "", berth.DefaultContainer, berth.DefaultLocal:
	default:
		return fmt.Errorf("shell_environment: %q is neither container nor local", c.ShellEnvironment)
	}
	return nil
}

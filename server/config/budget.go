package config

import (
	"fmt"
	"time"

	"github.com/berth-run/berth"
)

// Budget limits what one response may use before it ends as incomplete. A request may
// lower the limits, and may set the last two to anything. Default: no limits, except for the
// last two.
type Budget struct {
	MaxTurns  int           `yaml:"max_turns"`
	MaxTokens int           `yaml:"max_total_tokens"` // input and output of all turns
	MaxTime   time.Duration `yaml:"max_time"`         // since the response was created
	MaxCost   string        `yaml:"max_cost"`         // in the currency of the prices, such as 2.50
	// of the same call in a row; -1 means no limit. Default: 10
	MaxFailures int `yaml:"max_repeated_failures"`
	MaxRepeats  int `yaml:"max_repeated_calls"` // calls in a row without a new result; -1 means no limit. Default: 50
}

// Parse returns the limits, or an error that names the invalid key.
func (c Budget) Parse() (b berth.Budget, err error) {
	b = berth.Budget{Turns: c.MaxTurns, Tokens: c.MaxTokens, Seconds: int(c.MaxTime / time.Second),
		Failures: c.MaxFailures, Repeats: c.MaxRepeats}
	if c.MaxCost != "" {
		if b.Cost, err = berth.ParseAmount(c.MaxCost); err != nil {
			return b, fmt.Errorf("budget.max_cost: %w", err)
		}
	}
	for name, n := range map[string]int64{"max_turns": int64(b.Turns), "max_total_tokens": int64(b.Tokens),
		"max_time": int64(c.MaxTime), "max_cost": int64(b.Cost)} {
		if n < 0 {
			return b, fmt.Errorf("budget.%s must not be negative", name)
		}
	}
	if c.MaxTime > 0 && c.MaxTime < time.Second {
		return b, fmt.Errorf("budget.max_time must be at least 1s")
	}
	return b, nil
}

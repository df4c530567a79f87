package config

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

func TestBudgetConfig(t *testing.T) {
	b, err := Budget{MaxTurns: 3, MaxTokens: 4, MaxTime: 90 * time.Second, MaxCost: "2.50",
		MaxFailures: -1}.Parse()
	want := berth.Budget{Turns: 3, Tokens: 4, Seconds: 90, Failures: -1}
	want.Cost, _ = berth.ParseAmount("2.5")
	if err != nil || b != want || b.Cost == 0 {
		t.Errorf("got %+v, %v; want %+v", b, err, want)
	}
	for name, c := range map[string]Budget{"max_cost": {MaxCost: "a lot"}, "max_cost must not": {MaxCost: "-1"},
		"max_turns":        {MaxTurns: -1},
		"max_total_tokens": {MaxTokens: -1}, "max_time": {MaxTime: -time.Second},
		"at least 1s": {MaxTime: time.Millisecond}} {
		if _, err := c.Parse(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: got %v, want an error about %s", c, err, name)
		}
	}
}

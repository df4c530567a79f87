package config

import (
	"strings"
	"testing"
	"time"
)

// Durations of a configuration have days, as on the command line.
func TestDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute,
	} {
		var c Config
		c.origins = map[string]origin{}
		if problems := c.decode([]byte("containers: {snapshot_life: " + text + "}")); len(problems) > 0 {
			t.Errorf("%s: %v", text, problems)
		}
		if got := c.Containers.SnapshotLife; got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	var c Config
	c.origins = map[string]origin{}
	if problems := c.decode([]byte("containers: {snapshot_life: 0d}")); len(problems) != 1 ||
		!strings.Contains(problems[0].Error(), `"0d" must be 1m or more`) {
		t.Errorf("0d: got %v", problems)
	}
	for _, text := range []string{"d", "2d-1h", "99999999d", "1w", "2 d"} {
		var c Config
		c.origins = map[string]origin{}
		problems := c.decode([]byte("containers: {snapshot_life: " + text + "}"))
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), "must be a duration, such as 90s, 20m, 12h or 30d") {
			t.Errorf("%s: got %v", text, problems)
		}
	}
}

package console

import "testing"

// TestSpan: an age is written as it is read, in the longest unit that has no remainder; what is no age is refused.
func TestSpan(t *testing.T) {
	for text, seconds := range map[string]int64{"30d": 2592000, "36h": 129600, "5m": 300, "61s": 61} {
		if got, err := parseSpan(text); err != nil || got != seconds || span(got) != text {
			t.Errorf("%s: got %d, %q, %v", text, got, span(got), err)
		}
	}
	for _, text := range []string{"", "d", "0d", "-1d", "1.5h", "30", "1y", "9999999999d", "9223372036854775807s", "1d1h"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

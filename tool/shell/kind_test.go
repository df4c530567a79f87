package shell

import "testing"

// Every family of models has advice of its own.
func TestAdvice(t *testing.T) {
	seen := map[string]bool{}
	for _, family := range []string{"gpt", "claude", "gemini", "other"} {
		got := Kind(nil, Limits{}, nil).Advice(family)
		if got == "" || seen[got] {
			t.Errorf("advice for %s is %q", family, got)
		}
		seen[got] = true
	}
}

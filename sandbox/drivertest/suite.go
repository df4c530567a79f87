package drivertest

import (
	"os"
	"testing"
)

// Run runs the suite. It must be called by a top-level test.
func Run(t *testing.T, h Harness) {
	if dir := os.Getenv(childEnv); dir != "" {
		h.runChild(t, dir)
	}
	s := &suite{Harness: h, features: h.Open(t, StateDir(t)).Features()}
	t.Run("Lifecycle", lifecycle{s}.all)
	t.Run("Limits", limits{s}.all)
	s.run(t, "Mounts", s.mounts)
	if s.isolates() {
		t.Run("Attacks", attacks{s}.all)
		networks{s}.all(t)
	}
}

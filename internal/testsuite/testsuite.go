// Package testsuite tells tests which suite runs them. scripts/test sets BERTH_TEST_SUITE; without it, as in a
// plain `go test`, everything runs.
package testsuite

import (
	"os"
	"testing"
)

// Env is the environment variable with the name of the suite.
const Env = "BERTH_TEST_SUITE"

// The suites. Attacks is Core with the attacks on a driver's sandboxes.
const (
	Core    = "core"    // make test
	Attacks = "attacks" // make test after a change of what isolates
	System  = "system"  // make test-system
)

// IsCore reports whether only the core of a suite runs.
func IsCore() bool { return os.Getenv(Env) == Core || HasAttacks() }

// HasAttacks reports whether the attacks run with the core.
func HasAttacks() bool { return os.Getenv(Env) == Attacks }

// IsSystem reports whether what Core leaves out runs.
func IsSystem() bool { return os.Getenv(Env) == System }

// SkipInCore skips a test in make test, and leaves it to make test-system.
func SkipInCore(t testing.TB) {
	t.Helper()
	if IsCore() {
		t.Skip("skipped: not in the core of the suite; run make test-system")
	}
}

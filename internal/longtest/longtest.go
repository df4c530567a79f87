// Package longtest skips long tests in ordinary runs. They run if BERTH_TEST_LONG is set, as by
// `make test-long`.
package longtest

import (
	"os"
	"testing"
)

// Enabled reports whether long tests run.
func Enabled() bool { return os.Getenv("BERTH_TEST_LONG") != "" }

// Skip skips a test unless long tests are enabled. It is for tests that take more than about ten seconds
// and whose core a shorter test covers.
func Skip(tb testing.TB) {
	tb.Helper()
	if !Enabled() {
		tb.Skip("skipped: long test; run make test-long")
	}
}

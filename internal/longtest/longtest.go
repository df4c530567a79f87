// Package longtest keeps tests that take long out of an ordinary run: they run
// where BERTH_TEST_LONG is set, as `make test-long` does.
package longtest

import (
	"os"
	"testing"
)

// Asked reports whether tests that take long are to run.
func Asked() bool { return os.Getenv("BERTH_TEST_LONG") != "" }

// Skip skips the test unless tests that take long were asked for. It is for what
// takes more than about ten seconds and of which a shorter test holds the core.
func Skip(tb testing.TB) {
	tb.Helper()
	if !Asked() {
		tb.Skip("skipped: takes long; make test-long runs it")
	}
}

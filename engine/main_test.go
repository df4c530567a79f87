package engine_test

import (
	"os"
	"testing"

	"github.com/berth-run/berth/tool/program/javascript"
)

// The test binary is also the child of a javascript.Runner.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == javascript.Command {
		os.Exit(javascript.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

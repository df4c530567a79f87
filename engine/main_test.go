package engine_test

import (
	"os"
	"testing"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
	"github.com/berth-run/berth/tool/program/javascript"
)

// The test binary is also the child of a javascript.Runner.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == javascript.Command {
		os.Exit(javascript.Main(os.Args[2:]))
	}
	// The compressor of all stores makes a channel at its first use, which must not be in a bubble.
	sealed.Key{}.Events([]store.Event{{Data: []byte("{}")}})
	os.Exit(m.Run())
}

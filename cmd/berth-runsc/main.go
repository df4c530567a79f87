// Command berth-runsc is gVisor's runsc, built from its Go module so that one
// pinned version is compiled with the rest of Berth.
//
// It differs from runsc in two ways, both of which concern its start only:
// package faststart saves a wait in every process, and withLimits tells the
// sandbox how much memory and how many processors it has.
package main

import (
	"os"

	_ "github.com/berth-run/berth/cmd/berth-runsc/faststart" // before gVisor's own packages
	"gvisor.dev/gvisor/runsc/cli/maincli"
)

func main() {
	os.Args = withLimits(os.Args, readFD)
	maincli.Main()
}

// Command berth-runsc is gVisor's runsc, built from its Go module so that one
// pinned version is compiled with the rest of Berth.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }

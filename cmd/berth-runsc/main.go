// Command berth-runsc is gVisor's runsc, built from its Go module so that one
// pinned version is compiled with the rest of Berth.
//
// It differs from runsc in how it starts: package faststart saves a wait in every process, package prebuilt
// the computation of the seccomp filter, package lategc garbage collections during the start; package
// fastpath lets an idle sandbox sleep, package deny refuses user namespaces and device nodes, and
// withLimits passes the sandbox's memory and number of processors to it. For ordinary users it is also
// the sandbox's first process (package warden), and can restore a checkpoint.
package main

import (
	"os"
	"slices"

	"github.com/berth-run/berth/cmd/berth-runsc/deny"
	"github.com/berth-run/berth/cmd/berth-runsc/fastpath"
	_ "github.com/berth-run/berth/cmd/berth-runsc/faststart" // before gVisor's own packages
	"github.com/berth-run/berth/cmd/berth-runsc/lategc"
	"github.com/berth-run/berth/cmd/berth-runsc/prebuilt"
	"github.com/berth-run/berth/cmd/berth-runsc/rest"
	"github.com/berth-run/berth/cmd/berth-runsc/warden"
	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
)

// oomScoreAdj is sandbox.OOMScoreAdj: the kernel ends a sandbox before the server. All
// processes of a sandbox inherit it, also those of one that is restored.
const oomScoreAdj = "500"

func main() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(oomScoreAdj), 0)
	if len(os.Args) > 1 && os.Args[1] == warden.Command {
		os.Exit(warden.Main(os.Args[2:]))
	}
	if slices.Contains(os.Args, "boot") {
		rest.Notice()
		fastpath.Control()
		deny.Apply()
		prebuilt.Use()
	}
	lategc.Later()
	if slices.Contains(os.Args, "gofer") {
		rest.Settle()
	}
	os.Args = withLimits(withoutRootless(os.Args), readFD)
	// The commands that Berth calls, and those that engines call on an OCI runtime.
	cli.Run(map[subcommands.Command]string{
		new(cmd.Checkpoint): "",
		new(cmd.Create):     "",
		new(cmd.Delete):     "",
		new(cmd.Events):     "",
		new(cmd.Exec):       "",
		new(cmd.Kill):       "",
		new(cmd.List):       "",
		new(cmd.PS):         "",
		new(cmd.Pause):      "",
		new(restore):        "",
		new(cmd.Resume):     "",
		new(cmd.Run):        "",
		new(cmd.Start):      "",
		new(cmd.State):      "",
		new(cmd.Update):     "",
		new(cmd.Wait):       "",
		new(cmd.Debug):      "debug",
		new(cmd.Boot):       "internal use only",
		new(cmd.Gofer):      "internal use only",
		new(cmd.Umount):     "internal use only",
	}, nil)
}

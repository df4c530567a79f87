package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/google/subcommands"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"
)

// withoutRootless removes --rootless from the arguments of the sentry. For runsc the flag means that the
// sentry's user namespace maps only the current user, who may not map others. For the sentry it means
// that it cannot drop its initial privileges, so it keeps /proc and is not executed again as nobody.
// This sentry can drop them, so it runs without the flag.
func withoutRootless(args []string) []string {
	if !slices.Contains(args, "boot") {
		return args
	}
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--rootless=true" })
}

// restore is runsc's restore command, which refuses --rootless because it does not support all cases.
// Berth only restores a detached container.
type restore struct{ cmd.Restore }

func (r *restore) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	conf := args[0].(*config.Config)
	if !conf.Rootless {
		return r.Restore.Execute(ctx, f, args...)
	}
	if err := restoreRootless(conf, f); err != nil {
		fmt.Fprintln(os.Stderr, "restore:", err)
		return subcommands.ExitFailure
	}
	*args[1].(*unix.WaitStatus) = 0
	return subcommands.ExitSuccess
}

func restoreRootless(conf *config.Config, f *flag.FlagSet) error {
	value := func(name string) string { return f.Lookup(name).Value.String() }
	spec, err := specutils.ReadSpec(value("bundle"), conf)
	if err != nil {
		return err
	}
	c, err := container.New(conf, container.Args{ID: f.Arg(0), Spec: spec, BundleDir: value("bundle"),
		PIDFile: value("pid-file")})
	if err != nil {
		return err
	}
	if err := c.Restore(conf, value("image-path"), false, false); err != nil {
		c.Destroy()
		return err
	}
	return nil
}

package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/sandbox/microvm"
)

// kernelDir is where the kernel of virtual machines is kept.
func kernelDir(state string, config *Config) string {
	if dir := config.MicroVM.Kernel; dir != "" {
		return dir
	}
	return filepath.Join(state, "kernel")
}

func newImageKernel(state *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kernel",
		Short: "Fetch the kernel that the driver microvm boots",
		Long: `Fetch Debian's newest kernel for virtual machines (linux-image-cloud-amd64) with
apt and dpkg-deb, from this machine's package sources, and unpack it into the
state directory. Nothing is installed. A kernel that is there already is kept, so
this may be run as often as Debian's security updates are wanted; sandboxes that
are started afterwards boot the new one once the server has been restarted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := microvm.FetchKernel(cmd.Context(), filepath.Join(*state, "kernel"))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), k.Image)
			return err
		},
	}
}

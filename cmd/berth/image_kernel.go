package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server/driver"
)

func newImageKernel(state *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kernel",
		Short: "Fetch the kernel that the driver microvm boots",
		Long: `Fetch Debian's newest kernel for virtual machines (linux-image-cloud-amd64) with
apt and dpkg-deb, from this machine's package sources, and unpack it into the
state directory. It installs nothing. Run it again for Debian's security updates;
new sandboxes boot the new kernel after a restart of the server.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := mustExist(*state); err != nil {
				return err
			}
			image, err := driver.FetchKernel(cmd.Context(), *state)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), image)
			return err
		},
	}
}

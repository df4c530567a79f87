package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newStop() *cobra.Command {
	var all bool
	var patience time.Duration
	var yes *bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the server of a state directory, and with --all its containers",
		Long: `Stop the server that uses --state, and wait until it has ended. Containers and their
processes continue to run; the next berth serve takes them over.

With --all, also end all containers of the state directory and remove their processes,
mounts, cgroups and loop devices. Their files are lost, except those in snapshots and
volumes. No server needs to run. The command asks first, and without a terminal it needs
--yes.`,
		Args: noContainer("berth stop stops the server and takes no container. berth pause CONTAINER pauses one, " +
			"berth rm CONTAINER ends and deletes it"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(c.State)
			if err != nil {
				return err
			}
			if all && !*yes {
				if err := confirm(fmt.Sprintf("End all containers of %s? Their files are lost.", dir),
					"yes"); err != nil {
					return err
				}
			}
			pid, unlock, err := state.Stop(ctx, dir, patience)
			if err != nil {
				return err
			}
			defer unlock()
			if pid != 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "stopped (pid %d)\n", pid)
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "no server uses %s\n", dir)
			}
			if !all {
				return nil
			}
			n, err := server.EndContainers(ctx, dir, c, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s ended\n", counted(n, "container"))
			return nil
		},
	}
	cmd.Flags().String("state", config.DefaultState(), "directory for all state")
	configFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also end all containers")
	yes = yesFlag(cmd)
	durationFlag(cmd, &patience, "patience", "", time.Minute, "how long to wait for the server to end")
	return cmd
}

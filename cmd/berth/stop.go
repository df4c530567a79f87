package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
)

func newStop() *cobra.Command {
	var state, config string
	var all bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the server of a state directory, with --all its containers too",
		Long: `Stop the server that uses --state, in order, and wait until it has ended.
Containers and what runs in them outlive it: the next berth serve goes on with them.

With --all all containers of the state directory end as well, for good, and what is
left of them is removed: processes, mounts, cgroups, loop devices. Their files are
gone unless they are in a snapshot or a volume, which both stay. No server need run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			state, err := filepath.Abs(state)
			if err != nil {
				return err
			}
			unlock, err := server.Stop(ctx, state, patience)
			if err != nil {
				return err
			}
			defer unlock()
			if !all {
				return nil
			}
			c, err := server.LoadConfig(config)
			if err != nil {
				return err
			}
			n, err := server.EndContainers(ctx, state, c, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d containers ended\n", n)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", server.DefaultState(), "directory for all state")
	cmd.Flags().StringVar(&config, "config", "", "configuration file of the server, which names the driver")
	cmd.Flags().BoolVar(&all, "all", false, "end all containers too")
	cmd.Flags().DurationVar(&patience, "patience", time.Minute, "how long to wait for the server's end")
	return cmd
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
)

func newDB() *cobra.Command {
	cmd := &cobra.Command{Use: "db", Short: "Maintain the database"}
	cmd.AddCommand(newDBCompact())
	return cmd
}

func newDBCompact() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Write the database anew without what was deleted",
		Long: `Write the database anew without the space of what was deleted. No server may run
on it meanwhile, and there must be space for a second database.

A server gives the space of what was deleted back by itself, but not in a database
that an earlier version has made: that is done once by this command.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			before, after, err := server.Compact(cmd.Context(), state)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d bytes, before %d\n", after, before)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", server.DefaultState(), "directory for all state")
	return cmd
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newDB() *cobra.Command {
	cmd := &cobra.Command{Use: "db", Short: "Maintain the database"}
	cmd.AddCommand(newDBCompact())
	return cmd
}

func newDBCompact() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Rewrite the database without the space of deleted rows",
		Long: `Rewrite the database without the space of deleted rows. Stop the server first,
or all servers of a cluster. The disk must have room for a second database.

With a database file, a server releases that space itself, except in databases created by
an earlier version; run this command once on such a database. PostgreSQL reuses the space,
but seldom releases it; run this command after a large deletion.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			before, after, err := state.Compact(cmd.Context(), dir)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d bytes, before %d\n", after, before)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "state", config.DefaultState(), "directory for all state")
	return cmd
}

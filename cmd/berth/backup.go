package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
)

func newBackup() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "backup DIRECTORY",
		Short: "Copy the state, also of a running server",
		Long: `Copy the state into a new directory, from which berth serve --state can start.
The server may run: everything that it has acknowledged before the backup starts is in
it.

Templates (STATE/images) and the sandboxes of running containers are not copied; see
docs/backup.md. A volume that is in use is frozen while it is copied.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := server.Backup(cmd.Context(), state, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", server.DefaultState(), "directory for all state")
	return cmd
}

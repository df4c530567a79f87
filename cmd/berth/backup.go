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
		Short: "Back up the state directory, also of a running server",
		Long: `Copy the state into a new directory, from which berth serve --state can start. The
server may run: the copy includes everything that it acknowledged before the backup
started.
The copy excludes templates (STATE/images) and the sandboxes of running containers; see
docs/backup.md. A mounted volume is frozen while it is copied.`,
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

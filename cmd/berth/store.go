package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newStore() *cobra.Command {
	cmd := &cobra.Command{Use: "store", Short: "Move the database between SQLite and PostgreSQL"}
	cmd.AddCommand(newStoreCopy())
	return cmd
}

func newStoreCopy() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy the database to another one and use that",
		Long: `Copy the database of the state directory to another one, and make the state directory use
the copy. Stop the server first. FROM and TO are "sqlite", which is the file berth.db of
the state directory, or the URL of a PostgreSQL database. A password is best left to
PGPASSWORD or PGPASSFILE.

TO must be empty; nothing there is ever replaced. All rows are copied in one transaction,
which is committed after the number of rows and a digest of each table were compared.
FROM remains as it is. If the command fails, the state directory still uses FROM.`,
		Example: "  berth store copy sqlite postgres://berth@db.example.com/berth",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := state.CopyStore(cmd.Context(), dir, args[0], args[1])
			if err != nil {
				return err
			}
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(out, "TABLE\tROWS\tDIGEST")
			for _, t := range c.Tables {
				fmt.Fprintf(out, "%s\t%d\t%s\n", t.Table, t.Rows, t.Sum)
			}
			if err := out.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"the state directory %s now uses %s; set or remove store in the configuration accordingly\n"+
					"%s is the former database; delete it when the copy has proved itself\n", dir, c.Uses, c.Former)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "state", config.DefaultState(), "directory for all state")
	return cmd
}

package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server"
)

func newKey() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Create, list and remove API keys"}
	open := stateFlag(cmd)
	cmd.AddCommand(newKeyCreate(open), newKeyLs(open), newKeyRm(open))
	return cmd
}

func newKeyCreate(open opener) *cobra.Command {
	var name, of string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a key and print its secret, once",
		Long: `Create a key and print its secret. Only its SHA-256 is stored. Once a key exists, a
running server requires one from every client.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			owner, err := project.ParseID("--project", of)
			if err != nil {
				return err
			}
			return open.with(cmd.Context(), func(state *server.State) error {
				secret, err := state.Projects.CreateKey(cmd.Context(), owner, name, expires)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), secret)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&of, "project", string(berth.DefaultProject), "project of the key")
	cmd.Flags().StringVar(&name, "name", "", "name of the key")
	cmd.Flags().DurationVar(&expires, "expires", 0, "lifetime, such as 720h; 0 means no expiry")
	return cmd
}

func newKeyLs(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List keys",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return open.with(cmd.Context(), func(state *server.State) error {
				keys, err := state.Projects.ListKeys(cmd.Context())
				if err != nil {
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tPROJECT\tNAME\tSECRET\tCREATED\tEXPIRES")
				for _, k := range keys {
					expires := "never"
					if k.ExpiresAt != 0 {
						expires = utc(k.ExpiresAt)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t…%s\t%s\t%s\n", k.ID, k.Project, k.Name, k.Tail, utc(k.CreatedAt), expires)
				}
				return w.Flush()
			})
		},
	}
}

// utc formats a time in Unix seconds.
func utc(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

func newKeyRm(open opener) *cobra.Command {
	var last bool
	cmd := &cobra.Command{
		Use:   "rm KEY...",
		Short: "Remove keys by id",
		Long: `Remove keys by id. The server refuses them from the next request on.

Removing the last key requires --last. A running server then refuses every request
until a key is created. A server started without a key serves every user of this
machine, and listens on loopback addresses only.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return open.with(cmd.Context(), func(state *server.State) error {
				ids := make([]berth.KeyID, len(args))
				for i, arg := range args {
					ids[i] = berth.KeyID(strings.TrimSpace(arg))
				}
				left, err := state.Projects.RevokeKeys(cmd.Context(), ids, last)
				if errors.Is(err, project.ErrLastKey) {
					return errors.New("this is the last key: a server started without a key serves every user of this machine; create another key first, or use --last")
				}
				if err != nil {
					return err
				}
				if left == 0 {
					fmt.Fprintln(cmd.ErrOrStderr(), "No key is left: a running server refuses every request; a server started now serves every user of this machine.")
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "allow removing the last key")
	return cmd
}

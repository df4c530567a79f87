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
		Long: `Make a key and print its secret. Only its SHA-256 is stored. From the first
key on a running server asks every caller for one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			owner, err := project.ParseID("--project", of)
			if err != nil {
				return err
			}
			state, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer state.Close()
			secret, err := state.Projects.CreateKey(cmd.Context(), owner, name, expires)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), secret)
			return nil
		},
	}
	cmd.Flags().StringVar(&of, "project", string(berth.DefaultProject), "project that the key acts for")
	cmd.Flags().StringVar(&name, "name", "", "name of the key")
	cmd.Flags().DurationVar(&expires, "expires", 0, "lifetime, such as 720h; 0 has no end")
	return cmd
}

func newKeyLs(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List keys",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer state.Close()
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
		Long: `Remove keys by id. They are refused from the next request on.

The last key is removed only with --last. A running server then refuses every
request until a key is created. A server that is started without a key serves every
user of this machine, and listens on loopback addresses only.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer state.Close()
			ids := make([]berth.KeyID, len(args))
			for i, arg := range args {
				ids[i] = berth.KeyID(strings.TrimSpace(arg))
			}
			left, err := state.Projects.RevokeKeys(cmd.Context(), ids, last)
			if errors.Is(err, project.ErrLastKey) {
				return errors.New("no key would be left: a server started then serves everybody on this machine without one; make another key first, or use --last")
			}
			if err != nil {
				return err
			}
			if left == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No key is left: a running server refuses every request; one that is started now serves everybody on this machine without a key.")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "remove the last key as well")
	return cmd
}

package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newBlobs() *cobra.Command {
	cmd := &cobra.Command{Use: "blobs", Short: "Move files, skills and snapshots to a bucket or back"}
	state := cmd.PersistentFlags().String("state", config.DefaultState(), "directory for all state")
	cmd.AddCommand(newBlobsCopy(state), newBlobsTake(state))
	return cmd
}

func newBlobsCopy(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy the contents to another place and use that",
		Long: `Copy the contents of files, uploads, skills and snapshots to another place, and make the
state directory use the copy. Stop the server first. FROM and TO are "local", which is the
state directory, or the URL of a bucket, as in the configuration (blobs).

A bucket must be empty, or belong to this state. Contents that TO has already, with the
same checksum, are skipped: run the command again if it was interrupted. Each copied
content is verified. FROM remains as it is.`,
		Example: "  berth blobs copy local 's3://my-bucket?region=eu-central-1&prefix=berth'",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := state.CopyBlobs(cmd.Context(), *dir, args[0], args[1])
			if err != nil {
				return err
			}
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(out, "KIND\tCOPIED\tBYTES\tSKIPPED")
			for _, r := range results {
				fmt.Fprintf(out, "%s\t%d\t%d\t%d\n", r.Kind, r.Copied, r.Bytes, r.Skipped)
			}
			if err := out.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"set or remove blobs in the configuration accordingly; the contents at the former place are no longer used and can be deleted\n")
			return nil
		},
	}
}

func newBlobsTake(dir *string) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "take PLACE",
		Short: "Use contents that were copied by other means",
		Long: `Make the state directory use the contents at PLACE, and make it the owner of that bucket.
PLACE is "local" or the URL of a bucket. Stop the server first.

Use it when you have copied the contents yourself, or when a bucket has lost its owner file
or belongs to the state that this one replaces. A server removes contents that its database
does not know: never take a bucket that another server uses.`,
		Example: "  berth blobs take 's3://my-bucket?region=eu-central-1'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return state.TakeBlobs(cmd.Context(), *dir, args[0], func(owner string) error {
				if yes || owner == "" {
					return nil
				}
				return confirm(
					fmt.Sprintf(
						"The bucket belongs to %s. Servers of that state will stop using it, and what only their database knows will be deleted.",
						owner), "take")
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "take the bucket from its owner without confirmation")
	return cmd
}

package main

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

// A pruning selects the snapshots to delete.
type pruning struct {
	age   time.Duration // minimum age
	keep  int           // number of the newest of each container to keep
	cause string        // "" selects any
}

func newSnapshotPrune() *cobra.Command {
	var p pruning
	var dry bool
	cmd := &cobra.Command{Use: "prune --older AGE", Short: "Delete old snapshots", Args: cobra.NoArgs}
	durationFlag(cmd, &p.age, "older", "", 0, "minimum age, such as 30d or 12h")
	cmd.Flags().IntVar(&p.keep, "keep", 0, "number of newest snapshots of each container to keep, however old")
	cmd.Flags().StringVar(&p.cause, "cause", "", "select only snapshots with this cause: requested or expired")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print the ids")
	_ = cmd.MarkFlagRequired("older")
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if p.age < 0 || p.keep < 0 {
			return badUsage("--older and --keep must not be negative")
		}
		c := connect()
		all, err := list[berth.Snapshot](cmd.Context(), c, "/v1/snapshots")
		if err != nil {
			return err
		}
		return each(p.choose(all, time.Now()), func(id string) error {
			if !dry {
				if err := c.call(cmd.Context(), "DELETE", "/v1/snapshots/"+url.PathEscape(id), nil, nil); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		})
	}
	return cmd
}

// choose returns the ids of the snapshots to delete. The snapshots come newest first.
func (p pruning) choose(all []berth.Snapshot, now time.Time) (ids []string) {
	seen := map[berth.ContainerID]int{}
	for _, s := range all {
		if p.cause != "" && p.cause != string(s.Cause) {
			continue
		}
		if seen[s.ContainerID]++; seen[s.ContainerID] <= p.keep || now.Sub(time.Unix(s.CreatedAt, 0)) < p.age {
			continue
		}
		ids = append(ids, string(s.ID))
	}
	slices.Reverse(ids) // delete the oldest first, in case of an interruption
	return ids
}

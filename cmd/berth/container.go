package main

import (
	"fmt"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newPs() *cobra.Command {
	cmd := &cobra.Command{Use: "ps", Short: "List containers", Args: cobra.NoArgs}
	connect := clientFlags(cmd)
	all := cmd.Flags().BoolP("all", "a", false, "include ended containers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tNAME\tSTATUS\tISOLATION\tMEMORY\tAGE\tIDLE")
		for after := ""; ; {
			var page struct {
				Data    []berth.Container `json:"data"`
				LastID  string            `json:"last_id"`
				HasMore bool              `json:"has_more"`
			}
			path := "/v1/containers?limit=100"
			if after != "" {
				path += "&after=" + url.QueryEscape(after)
			}
			if err := connect().call(cmd.Context(), "GET", path, nil, &page); err != nil {
				return err
			}
			for _, c := range page.Data {
				if c.Status == berth.ContainerRunning || *all {
					fmt.Fprintln(w, psLine(&c, time.Now()))
				}
			}
			if after = page.LastID; !page.HasMore {
				return w.Flush()
			}
		}
	}
	return cmd
}

func psLine(c *berth.Container, now time.Time) string {
	status := string(c.Status)
	switch {
	case c.Berth.Paused:
		status = "paused"
	case c.Berth.Asleep:
		status = "asleep"
	}
	if c.Berth.Reason != "" {
		status += " (" + c.Berth.Reason + ")"
	}
	since := func(at int64) string { return now.Sub(time.Unix(at, 0)).Truncate(time.Second).String() }
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s of %dm", c.ID, inLine(c.Name), status, c.Berth.Isolation, c.MemoryLimit,
		since(c.CreatedAt), since(c.LastActiveAt), c.ExpiresAfter.Minutes)
}

func newRm() *cobra.Command {
	cmd := &cobra.Command{Use: "rm CONTAINER...", Short: "Delete containers with their files", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		return each(ids, func(id string) error {
			return connect().call(cmd.Context(), "DELETE", "/v1/containers/"+url.PathEscape(id), nil, nil)
		})
	}
	return cmd
}

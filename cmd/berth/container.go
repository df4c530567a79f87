package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newPs() *cobra.Command {
	cmd := &cobra.Command{Use: "ps", Aliases: []string{"ls"}, Short: "List containers", Args: cobra.NoArgs}
	connect, l := clientFlags(cmd), listFlags[berth.Container](cmd, "status=expired", 0)
	all := cmd.Flags().BoolP("all", "a", false, "include ended containers, as does a --filter on status")
	name := cmd.Flags().String("name", "", "only containers with this name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := list[*berth.Container](cmd.Context(), connect(), "/v1/containers")
		if err != nil {
			return err
		}
		ended := *all || l.where.has("status")
		var shown []*berth.Container
		for _, c := range found {
			if (c.Status == berth.ContainerRunning || ended) && (*name == "" || c.Name == *name) {
				shown = append(shown, c)
			}
		}
		return printContainers(cmd.OutOrStdout(), l, shown)
	}
	return cmd
}

func printContainers(w io.Writer, l *listing, all []*berth.Container) error {
	now := time.Now()
	// Where all containers have the same isolation, it is no news.
	isolation := l.full || slices.ContainsFunc(all, func(c *berth.Container) bool {
		return c.Berth.Isolation != all[0].Berth.Isolation
	})
	head := "ID\tNAME\tSTATUS\tMEMORY\tAGE\tIDLE"
	if isolation {
		head += "\tISOLATION"
	}
	return printList(w, l, all, func(c *berth.Container) string {
		return string(c.ID)
	}, head, func(c *berth.Container) string {
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s of %dm", l.id(string(c.ID)), l.cut(inLine(c.Name), 24),
			containerStatus(c),
			c.MemoryLimit, age(now, c.CreatedAt), age(now, c.LastActiveAt), c.ExpiresAfter.Minutes)
		if isolation {
			row += "\t" + c.Berth.Isolation
		}
		return row
	})
}

// containerStatus returns the status of a container with its reason.
func containerStatus(c *berth.Container) string {
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
	return status
}

func newRm() *cobra.Command {
	cmd := &cobra.Command{Use: "rm CONTAINER...", Short: "Delete containers with their files",
		Long: `Delete containers with their files. --all deletes all running containers of the project: the
command asks first, and without a terminal it needs --yes.`}
	connect := clientFlags(cmd)
	all := cmd.Flags().Bool("all", false, "delete all running containers of the project")
	force := cmd.Flags().BoolP("force", "f", false, "succeed if a container does not exist")
	yes := yesFlag(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *all && len(args) > 0 {
			return errors.New("--all takes no containers")
		}
		if *all {
			return nil
		}
		return cobra.MinimumNArgs(1)(cmd, args)
	}
	cmd.ValidArgsFunction = containers.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		if *all {
			running, err := c.running(cmd.Context())
			if err != nil {
				return err
			}
			for _, one := range running {
				refs = append(refs, string(one.ID))
			}
			if len(refs) > 0 && !*yes {
				if err := confirm(fmt.Sprintf("Delete %s with their files: %s?", counted(len(refs), "container"),
					someOf(refs)), "yes"); err != nil {
					return err
				}
			}
		}
		return each(refs, func(ref string) error {
			id, err := containers.resolve(cmd.Context(), c, ref)
			if err == nil {
				err = c.call(cmd.Context(), "DELETE", "/v1/containers/"+url.PathEscape(id), nil, nil)
			}
			if *force && isNotFound(err) {
				return nil
			}
			return err
		})
	}
	return cmd
}

func newInspect() *cobra.Command {
	cmd := &cobra.Command{Use: "inspect CONTAINER...", Short: "Print containers as JSON", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = containers.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			id, err := containers.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.printObject(cmd, "/v1/containers/"+url.PathEscape(id))
		})
	}
	return cmd
}

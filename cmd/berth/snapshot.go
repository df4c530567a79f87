package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Create, list and delete snapshots of containers",
		Long: `Save the files of containers, and start other containers from them with berth run
--snapshot, or with "berth": {"snapshot_id": …} in a request for a container.`}
	cmd.AddCommand(newSnapshotCreate(), newSnapshotLs(), newSnapshotRm(), newSnapshotPrune())
	return cmd
}

func newSnapshotCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create CONTAINER", Short: "Create a snapshot of a container", Args: cobra.ExactArgs(1)}
	connect, req, created := clientFlags(cmd), snapshotFlags(cmd), createdFlag(cmd)
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var made berth.Snapshot
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if err := c.call(cmd.Context(), "POST", containerPath(id, "snapshots"), req, &made); err != nil {
			return err
		}
		return created(string(made.ID), &made)
	}
	return cmd
}

// snapshotFlags adds the flags that snapshots and forks share.
func snapshotFlags(cmd *cobra.Command) *container.SnapshotRequest {
	req := &container.SnapshotRequest{}
	cmd.Flags().StringVar(&req.Name, "name", "", "name of the new object")
	cmd.Flags().BoolVar(&req.Memory, "memory", false, "include the memory of running processes")
	return req
}

func newSnapshotLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List snapshots", Args: cobra.NoArgs}
	connect, l := clientFlags(cmd), listFlags[berth.Snapshot](cmd, "cause=expired", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := listFor[*berth.Snapshot](cmd.Context(), connect(), "/v1/snapshots", l)
		if err != nil {
			return err
		}
		return printSnapshots(cmd.OutOrStdout(), l, all)
	}
	return cmd
}

func printSnapshots(w io.Writer, l *listing, all []*berth.Snapshot) error {
	now := time.Now()
	return printList(w, l, all, func(s *berth.Snapshot) string { return string(s.ID) },
		"ID\tNAME\tCONTAINER\tCAUSE\tMEMORY\tSTORED\tCREATED\tEXPIRES", func(s *berth.Snapshot) string {
			memory, expires := "-", "never"
			if s.Memory {
				memory = s.MemoryLimit
			}
			if s.ExpiresAt != nil {
				expires = l.until(now, *s.ExpiresAt)
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", l.id(string(s.ID)), l.cut(inLine(s.Name), 14),
				l.id(string(s.ContainerID)), s.Cause, memory,
				size(s.StoredBytes), l.since(now, s.CreatedAt), expires)
		})
}

func newSnapshotRm() *cobra.Command {
	cmd := &cobra.Command{Use: "rm SNAPSHOT...", Short: "Delete snapshots", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = snapshots.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		c := connect()
		return each(ids, func(ref string) error {
			id, err := snapshots.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), "DELETE", "/v1/snapshots/"+url.PathEscape(id), nil, nil)
		})
	}
	return cmd
}

func newFork() *cobra.Command {
	cmd := &cobra.Command{Use: "fork CONTAINER", Short: "Create a container from the files of another",
		Long: `Create a container from the files of another, and print its id. Its name is that of the
other with "-fork", unless --name sets one. --replace first deletes the running container
that has the name. With --count, print the ids of as many forks, one a line; their names end
in -1, -2 and so on.`, Args: cobra.ExactArgs(1)}
	connect, req, created := clientFlags(cmd), snapshotFlags(cmd), createdFlag(cmd)
	replace := cmd.Flags().Bool("replace", false, "first delete the running container with the name of --name")
	count := cmd.Flags().Int("count", 0, "number of forks, at most 100; all have the same content")
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("count") && (*count < 1 || *count > container.MaxForks || *replace) {
			return badUsage("--count must be 1 to %d, without --replace", container.MaxForks)
		}
		var made berth.Container
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if *replace {
			if err := makeRoom(cmd.Context(), c, id, req.Name); err != nil {
				return err
			}
		}
		if req.Name == "" {
			if req.Name, err = nameOfFork(cmd.Context(), c, id); err != nil {
				return err
			}
		}
		fork := container.ForkRequest{SnapshotRequest: *req, UniqueName: true}
		if *count > 0 {
			return forkMany(cmd, c, id, fork, *count, created)
		}
		if err := c.call(cmd.Context(), "POST", containerPath(id, "fork"), fork, &made); err != nil {
			return suggestReplace(err, cmd.CommandPath())
		}
		return created(string(made.ID), &made)
	}
	return cmd
}

// forkMany makes forks that have the same content.
func forkMany(cmd *cobra.Command, c *client, id string, fork container.ForkRequest, count int,
	created func(id string, made any) error) error {
	body := struct {
		container.ForkRequest
		Count int `json:"count"`
	}{fork, count}
	var made struct {
		Data []berth.Container `json:"data"`
	}
	if err := c.call(cmd.Context(), "POST", containerPath(id, "forks"), body, &made); err != nil {
		return err
	}
	for _, fork := range made.Data {
		if err := created(string(fork.ID), &fork); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom deletes the running container that has the name of a fork. It never deletes the source.
func makeRoom(ctx context.Context, c *client, source, name string) error {
	if name == "" {
		return badUsage("--replace needs --name")
	}
	var from berth.Container
	if err := c.call(ctx, "GET", "/v1/containers/"+url.PathEscape(source), nil, &from); err != nil {
		return err
	}
	if from.Name == name {
		return badUsage("--replace would delete the container that is forked; choose another name than %s", inLine(name))
	}
	return c.removeNamed(ctx, name)
}

// nameOfFork returns a name for the fork of a container that no other container has: box-fork,
// box-fork-2.
func nameOfFork(ctx context.Context, c *client, id string) (string, error) {
	all, err := list[object](ctx, c, containers.path)
	if err != nil {
		return "", err
	}
	taken, name := map[string]bool{}, ""
	for _, o := range all {
		taken[o.Name] = true
		if o.ID == id {
			name = o.Name
		}
	}
	name += "-fork"
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", strings.TrimSuffix(name, fmt.Sprintf("-%d", n-1)), n)
	}
	return name, nil
}

func newPause() *cobra.Command {
	return newContainerAction("pause", "Pause containers until their next use")
}

func newResume() *cobra.Command { return newContainerAction("resume", "Continue paused containers") }

// newContainerAction returns a command that calls one endpoint for each container.
func newContainerAction(what, short string) *cobra.Command {
	cmd := &cobra.Command{Use: what + " CONTAINER...", Short: short, Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = containers.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		c := connect()
		return each(ids, func(ref string) error {
			id, err := containers.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), "POST", containerPath(id, what), nil, nil)
		})
	}
	return cmd
}

// each calls do for all ids. It prints errors and continues.
func each(ids []string, do func(id string) error) error {
	failed := false
	for _, id := range ids {
		if err := do(id); err != nil {
			text := inLine(err.Error())
			if !strings.Contains(text, strconv.Quote(id)) { // which names the object already
				text = id + ": " + text
			}
			fmt.Fprintf(os.Stderr, "berth: %s\n", text)
			failed = true
		}
	}
	if failed {
		return exitError(1)
	}
	return nil
}

func containerPath(id, what string) string {
	return "/v1/containers/" + url.PathEscape(id) + "/" + what
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newEndUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "end-user",
		Short: "List end users, show what they use, and forget them",
		Long: `An end user is a person, or a chat, for whom a client with a key of the project sends
requests. USER is an id, or what the client calls the user. See ` + berth.DocsURL + `end-users.md`,
	}
	cmd.AddCommand(newEndUserLs(), newEndUserGet(), newEndUserUsage(), newEndUserExport(), newEndUserForget())
	return cmd
}

var endUserPattern = regexp.MustCompile("^" + berth.PrefixEndUser + "[0-9a-f]{32}$")

// endUserPath returns the path of the user that ref names.
func endUserPath(ctx context.Context, c *client, ref string) (string, error) {
	if endUserPattern.MatchString(ref) {
		return "/v1/end_users/" + ref, nil
	}
	if ref == "" {
		return "", badUsage("the name of an end user is empty")
	}
	found, err := listFor[berth.EndUser](ctx, c, "/v1/end_users?user="+url.QueryEscape(ref), &listing{})
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("end user %q %w: neither an id nor a name of this project", ref, errNotFound)
	}
	if !endUserPattern.MatchString(string(found[0].ID)) {
		return "", fmt.Errorf("the server lists an end user with the id %q, which is no id", found[0].ID)
	}
	return "/v1/end_users/" + string(found[0].ID), nil
}

func newEndUserLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List end users, the newest first", Args: cobra.NoArgs}
	connect, l := clientFlags(cmd), listFlags[berth.EndUser](cmd, "user=ann*", 50)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := listFor[*berth.EndUser](cmd.Context(), connect(), "/v1/end_users", l)
		if err != nil {
			return err
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, all, func(u *berth.EndUser) string { return string(u.ID) },
			"ID\tUSER\tCHAT\tCREATED", func(u *berth.EndUser) string {
				return fmt.Sprintf("%s\t%s\t%s\t%s", l.id(string(u.ID)), l.cut(cmp.Or(u.User, "-"), 32),
					l.cut(cmp.Or(u.Chat, "-"), 32), l.since(now, u.CreatedAt))
			})
	}
	return cmd
}

func newEndUserGet() *cobra.Command {
	cmd := &cobra.Command{Use: "get USER...", Short: "Print end users as JSON", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			path, err := endUserPath(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.printObject(cmd, path)
		})
	}
	return cmd
}

func newEndUserUsage() *cobra.Command {
	cmd := &cobra.Command{Use: "usage USER...", Short: "Print what end users used in a month as JSON",
		Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	month := cmd.Flags().String("month", "", "month, such as 2026-11 (default: the present one, UTC)")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c, query := connect(), ""
		if *month != "" {
			query = "?month=" + url.QueryEscape(*month)
		}
		return each(refs, func(ref string) error {
			path, err := endUserPath(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.printObject(cmd, path+"/usage"+query)
		})
	}
	return cmd
}

func newEndUserExport() *cobra.Command {
	cmd := &cobra.Command{Use: "export USER DIRECTORY", Short: "Export all that belongs to an end user to a directory",
		Long: `Export all that belongs to an end user to a new directory, as files of JSON, with the contents of files and
containers. See ` + berth.DocsURL + `export.md`,
		Args: cobra.ExactArgs(2)}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		path, err := endUserPath(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return export(cmd, c, args[1], path[strings.LastIndexByte(path, '/')+1:], func(e *exporter) error {
			return e.user(cmd.Context(), path)
		})
	}
	return cmd
}

func newEndUserForget() *cobra.Command {
	cmd := &cobra.Command{Use: "forget USER", Short: "Delete all that belongs to an end user",
		Long: `Delete all that belongs to an end user: containers, files, snapshots, responses, conversations and traces. It
prints how many of each were deleted, and the signed checkpoint of the audit record, which has the deletion. If it is
interrupted, the server continues by itself.`,
		Args: cobra.ExactArgs(1)}
	connect, yes := clientFlags(cmd), yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		path, err := endUserPath(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if !*yes {
			if err := confirm(fmt.Sprintf("All data of end user %s will be deleted.", inLine(args[0])), "forget"); err != nil {
				return err
			}
		}
		return c.printAnswer(cmd, "DELETE", path, nil)
	}
	return cmd
}

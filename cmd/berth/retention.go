package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
)

func newRetention() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Set how long a project retains objects, and show what ended",
		Long: `A project retains objects as long as the configuration of the server says, or shorter. See
` + berth.DocsURL + `retention.md`,
	}
	cmd.AddCommand(newRetentionGet(), newRetentionSet(), newRetentionRecords())
	return cmd
}

func newRetentionGet() *cobra.Command {
	cmd := &cobra.Command{Use: "get", Short: "Print how long the project retains objects, as JSON", Args: cobra.NoArgs}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return connect().printObject(cmd, "/v1/retention") }
	return cmd
}

func newRetentionSet() *cobra.Command {
	cmd := &cobra.Command{Use: "set [KIND=TIME...]", Short: "Replace what the project sets for itself",
		Long: `Replace what the project sets for itself: times after the creation, such as responses=30d. What is older is
deleted within a minute. Kinds without a time are retained as the configuration of the server says; so is everything
if there is no argument.`,
		ValidArgsFunction: cobra.NoFileCompletions}
	connect, yes := clientFlags(cmd), yesFlag(cmd)
	store := cmd.Flags().String("store", "", "false: never store responses and chat completions, whatever requests say")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		own := berth.RetentionSettings{ExpireAfter: map[berth.Retained]int64{}}
		for _, arg := range args {
			kind, text, ok := strings.Cut(arg, "=")
			if !ok || !slices.Contains(berth.RetainedKinds, berth.Retained(kind)) {
				return badUsage("%q is not KIND=TIME; kinds are %s", arg, kinds())
			}
			life, err := config.ParseDuration(text)
			if err != nil || life < time.Second {
				return badUsage("%q is no time such as 30d or 12h", text)
			}
			own.ExpireAfter[berth.Retained(kind)] = int64(life / time.Second)
		}
		switch *store {
		case "":
		case "true", "false":
			own.Store = new(*store == "true")
		default:
			return badUsage("--store is true or false")
		}
		if !*yes && len(args) > 0 {
			if err := confirm("All objects of the project that are older will be deleted.", "delete"); err != nil {
				return err
			}
		}
		return connect().printAnswer(cmd, "POST", "/v1/retention", own)
	}
	return cmd
}

func kinds() string {
	var names []string
	for _, kind := range berth.RetainedKinds {
		if kind != berth.RetainedAudit {
			names = append(names, string(kind))
		}
	}
	return strings.Join(names, ", ")
}

func newRetentionRecords() *cobra.Command {
	cmd := &cobra.Command{Use: "records [RECORD...]", Short: "List what ended because of its age, or print records with ids",
		ValidArgsFunction: cobra.NoFileCompletions}
	connect, l := clientFlags(cmd), listFlags[berth.RetentionRecord](cmd, "kind=responses", 50)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		c := connect()
		if len(ids) > 0 {
			return each(ids, func(id string) error { return c.printObject(cmd, "/v1/retention/records/"+id) })
		}
		all, err := listFor[*berth.RetentionRecord](cmd.Context(), c, "/v1/retention/records", l)
		if err != nil {
			return err
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, all, func(r *berth.RetentionRecord) string { return r.ID },
			"ID\tKIND\tCOUNT\tPOLICY\tENDED\tDIGEST", func(r *berth.RetentionRecord) string {
				return fmt.Sprintf("%s\t%s\t%d\t%s %s\t%s\t%s", l.id(r.ID), r.Kind, r.Count, r.Source,
					time.Duration(r.ExpireAfter)*time.Second, l.since(now, r.CreatedAt), l.cut(r.Digest, 24))
			})
	}
	return cmd
}

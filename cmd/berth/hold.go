package main

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newHold() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Stop the deletion of objects until a hold is released",
		Long: `A hold stops the deletion of a project's objects: of all, of those of an end user, or of one object.
With --project and an admin key, the organization makes and releases holds, which the project cannot release. See
` + berth.DocsURL + `retention.md`,
	}
	cmd.AddCommand(newHoldCreate(), newHoldLs(), newHoldRm())
	return cmd
}

// holdPath returns the path of the holds of a project; "" is that of the key.
func holdPath(project string) string {
	if project == "" {
		return "/v1/holds"
	}
	return "/v1/organization/projects/" + url.PathEscape(project) + "/holds"
}

func projectFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("project", "", "id of the project, with an admin key (default: the project of the key)")
}

func newHoldCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create", Short: "Hold objects and print the id of the hold", Args: cobra.NoArgs}
	connect, project, created := clientFlags(cmd), projectFlag(cmd), createdFlag(cmd)
	var hold struct {
		Reason   string `json:"reason"`
		EndUser  string `json:"end_user,omitempty"`
		ObjectID string `json:"object_id,omitempty"`
	}
	cmd.Flags().StringVar(&hold.Reason, "reason", "", "why the objects are held (required)")
	cmd.Flags().StringVar(&hold.EndUser, "end-user", "", "id of the end user whose objects are held")
	cmd.Flags().StringVar(&hold.ObjectID, "object", "", "id of the object that is held (default: the whole project)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if hold.Reason == "" {
			return badUsage("--reason is missing")
		}
		var made berth.Hold
		if err := connect().call(cmd.Context(), "POST", holdPath(*project), hold, &made); err != nil {
			return err
		}
		return created(string(made.ID), made)
	}
	return cmd
}

func newHoldLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List holds, the newest first", Args: cobra.NoArgs}
	connect, project, l := clientFlags(cmd), projectFlag(cmd), listFlags[berth.Hold](cmd, "by=organization", 50)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := listFor[*berth.Hold](cmd.Context(), connect(), holdPath(*project), l)
		if err != nil {
			return err
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, all, func(h *berth.Hold) string { return string(h.ID) },
			"ID\tHOLDS\tBY\tMADE BY\tCREATED\tREASON", func(h *berth.Hold) string {
				what := cmp.Or(h.ObjectID, string(h.EndUser), string(h.ProjectID))
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", l.id(string(h.ID)), l.cut(what, 40), h.By,
					l.cut(cmp.Or(h.Person, string(h.KeyID), "-"), 24), l.since(now, h.CreatedAt), l.cut(h.Reason, 40))
			})
	}
	return cmd
}

func newHoldRm() *cobra.Command {
	cmd := &cobra.Command{Use: "rm HOLD", Short: "Release a hold",
		Long: `Release a hold. The server then deletes older objects than the retention allows within a minute.`,
		Args: cobra.ExactArgs(1)}
	connect, project, yes := clientFlags(cmd), projectFlag(cmd), yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*yes {
			if err := confirm(fmt.Sprintf("What hold %s holds can be deleted then.", inLine(args[0])), "release"); err != nil {
				return err
			}
		}
		return connect().printAnswer(cmd, "DELETE", holdPath(*project)+"/"+url.PathEscape(args[0]), nil)
	}
	return cmd
}

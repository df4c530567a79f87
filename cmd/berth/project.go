package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/store"
)

func newProject() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "project",
		Short: "Create, list, limit and archive projects",
		Long: `A project owns everything that is created with its keys. Creating one is optional: berth
key create --project accepts any id. A created project can have a name and its own limits, and
can be archived.

A running server applies changes within a second.`,
	}
	open := stateFlag(cmd)
	cmd.AddCommand(newProjectCreate(open), newProjectLs(open), newProjectLimit(open), newProjectArchive(open))
	return cmd
}

func newProjectCreate(open opener) *cobra.Command {
	var id, name string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a project and print its id",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if id == "" {
				id = berth.NewID(berth.PrefixProject)
			}
			p, err := project.ParseID("--id", id)
			if err != nil {
				return err
			}
			return open.withNew(cmd.Context(), func(state *server.State) error {
				if _, err := state.Projects.Create(cmd.Context(), p, name); errors.Is(err, store.ErrExists) {
					return fmt.Errorf("project %s already exists", p)
				} else if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), p)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "id, proj_… (default: a new one)")
	cmd.Flags().StringVar(&name, "name", "", "name of the project")
	return cmd
}

func newProjectLs(open opener) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List projects, including those known only from keys", Args: cobra.NoArgs}
	l := listFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return open.with(cmd.Context(), func(state *server.State) error {
			projects, err := state.Projects.ListAll(cmd.Context())
			if err != nil {
				return err
			}
			var rows []projectRow
			for _, p := range projects {
				stored, err := state.StoredBytes(cmd.Context(), p.ID)
				if err != nil {
					return err
				}
				rows = append(rows, projectRow{p.Project, p.Keys, stored})
			}
			return printList(cmd.OutOrStdout(), l, rows, func(p projectRow) string { return string(p.ID) },
				"ID\tNAME\tSTATUS\tKEYS\tCREATED\tSTORED BYTES\tLIMITS", func(p projectRow) string {
					created := "-"
					if p.CreatedAt != 0 {
						created = utc(p.CreatedAt)
					}
					return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%d\t%s", p.ID, p.Name, p.Status, p.Keys, created, p.StoredBytes, inWords(p.Limits))
				})
		})
	}
	return cmd
}

// A projectRow is a project as berth project ls prints it.
type projectRow struct {
	*berth.Project
	Keys        int   `json:"keys"`
	StoredBytes int64 `json:"stored_bytes"`
}

func newProjectLimit(open opener) *cobra.Command {
	var clear bool
	var given func() server.LimitsConfig
	cmd := &cobra.Command{
		Use:   "limit PROJECT",
		Short: "Set the limits of a project",
		Long: `Set limits of a project, which override those of the configuration. "none" means no
limit. Other limits of the project stay unchanged.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := project.ParseID("the project", args[0])
			if err != nil {
				return err
			}
			limits := given()
			if err := limits.Check(); err != nil {
				return fmt.Errorf("--%w", err)
			}
			return open.with(cmd.Context(), func(state *server.State) error {
				if clear {
					if _, err := state.Projects.ClearLimits(cmd.Context(), id); err != nil {
						return err
					}
				}
				p, err := state.Projects.SetLimits(cmd.Context(), id, limits.Limits())
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), inWords(p.Limits))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&clear, "clear", false, "first remove all limits of the project")
	given = limitsFlags(cmd)
	return cmd
}

func newProjectArchive(open opener) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "archive PROJECT",
		Short: "End a project: refuse its keys and delete its data",
		Long: `Archive a project. Its keys are refused within a second. A running server, or the next
one to start, removes the project's containers, snapshots, volumes, files, responses and all
other objects within a few minutes, and writes this to the audit record. This cannot be
undone: the command asks first, and without a terminal it needs --yes. The usage of the
project is still reported.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := project.ParseID("the project", args[0])
			if err != nil {
				return err
			}
			if !yes {
				if err := confirm(fmt.Sprintf("Archive %s? Its keys are refused and all its data is deleted, for ever.", id), string(id)); err != nil {
					return err
				}
			}
			return open.with(cmd.Context(), func(state *server.State) error {
				erased, err := state.Archive(cmd.Context(), id)
				if errors.Is(err, server.ErrNoProject) {
					return fmt.Errorf("no project %s: %w", id, err)
				}
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is archived; to be erased: %s\n", id, erased)
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

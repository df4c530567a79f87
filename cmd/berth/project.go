package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
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
	cmd.AddCommand(newProjectCreate(open), newProjectLs(open), newProjectLimit(open), newProjectExport(),
		newProjectArchive(open))
	return cmd
}

func newProjectCreate(open opener) *cobra.Command {
	var id, name string
	var created func(text string, object any) error
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
				return usageError{err}
			}
			return open.withNew(cmd.Context(), func(state *state.Dir) error {
				made, err := state.Projects.Create(cmd.Context(), p, name)
				if errors.Is(err, store.ErrExists) {
					return fmt.Errorf("project %s already exists", p)
				}
				if err != nil {
					return err
				}
				return created(string(p), made)
			})
		},
	}
	created = createdFlag(cmd)
	cmd.Flags().StringVar(&id, "id", "", "id, proj_… (default: a new one)")
	cmd.Flags().StringVar(&name, "name", "", "name of the project")
	return cmd
}

func newProjectLs(open opener) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List projects, including those known only from keys", Args: cobra.NoArgs}
	l := listFlags[projectRow](cmd, "status=active", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return open.with(cmd.Context(), func(state *state.Dir) error {
			projects, err := state.Projects.ListAll(cmd.Context())
			if err != nil {
				return err
			}
			now := time.Now()
			var rows []projectRow
			for _, p := range projects {
				stored, err := state.StoredBytes(cmd.Context(), p.ID)
				if err != nil {
					return err
				}
				rows = append(rows, projectRow{p.Project, p.Keys, stored})
			}
			return printList(cmd.OutOrStdout(), l, rows, func(p projectRow) string { return string(p.ID) },
				"ID\tNAME\tSTATUS\tKEYS\tCREATED\tSTORED\tLIMITS", func(p projectRow) string {
					created, stored := "-", size(p.StoredBytes)
					if p.CreatedAt != 0 {
						created = l.since(now, p.CreatedAt)
					}
					if l.full {
						stored = strconv.FormatInt(p.StoredBytes, 10)
					}
					return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s", l.id(string(p.ID)), l.cut(inLine(p.Name), 12),
						p.Status, p.Keys, created, stored, l.cut(inWords(p.Limits), 20))
				})
		})
	}
	return cmd
}

func newProjectExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIRECTORY",
		Short: "Export all that a server has of a key's project to a directory",
		Long: `Export all objects of the project of BERTH_API_KEY to a new directory, as files of JSON, with the
contents of files and containers. It asks a server, and reads no state directory. See ` + berth.DocsURL + `export.md`,
		Args: cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("state") {
			return badUsage("an export asks a server; select it with --url instead of --state")
		}
		c := connect()
		var self struct {
			Project string `json:"project_id"`
		}
		if err := c.call(cmd.Context(), "GET", "/v1/whoami", nil, &self); err != nil {
			return err
		}
		return export(cmd, c, args[0], self.Project, func(e *exporter) error { return e.project(cmd.Context()) })
	}
	return cmd
}

// projectNames are the names of the projects that have one.
type projectNames map[berth.ProjectID]string

func readProjectNames(ctx context.Context, state *state.Dir) (projectNames, error) {
	all, err := state.Projects.ListAll(ctx)
	if err != nil {
		return nil, err
	}
	names := projectNames{}
	for _, p := range all {
		if p.Name != "" {
			names[p.ID] = p.Name
		}
	}
	return names, nil
}

// shown returns a project as a table shows it: with its name if it has one that no other project has.
func (n projectNames) shown(l *listing, id berth.ProjectID) string {
	name, same := n[id], 0
	for _, other := range n {
		if other == name {
			same++
		}
	}
	if l.full || name == "" || same > 1 {
		return l.id(string(id))
	}
	return inLine(name)
}

// findProject returns the project that ref selects: an id, a short id as tables show it, or a name.
// Other parts of an id select nothing, because users choose ids: the key of a new project proj_b must
// not become one of proj_98…b. An unknown id is returned unchanged, because a project can exist
// without a record.
func findProject(ctx context.Context, state *state.Dir, ref string) (berth.ProjectID, error) {
	id, _, err := lookupProject(ctx, state, ref)
	return id, err
}

// knownProject is findProject for a project that exists: it has a record or a key.
func knownProject(ctx context.Context, state *state.Dir, ref string) (berth.ProjectID, error) {
	id, known, err := lookupProject(ctx, state, ref)
	if err == nil && !known {
		err = fmt.Errorf("project %q %w: it has no record and no key; berth project ls lists the projects", ref,
			errNotFound)
	}
	return id, err
}

func lookupProject(ctx context.Context, state *state.Dir, ref string) (id berth.ProjectID, known bool, err error) {
	all, err := state.Projects.ListAll(ctx)
	if err != nil {
		return "", false, err
	}
	var found []string
	for _, p := range all {
		if string(p.ID) == ref {
			return p.ID, true, nil
		}
		if p.Name != "" && p.Name == ref || shortID(string(p.ID)) == ref {
			found = append(found, string(p.ID))
		}
	}
	switch {
	case len(found) == 1:
		return berth.ProjectID(found[0]), true, nil
	case len(found) > 1:
		return "", false, ambiguous("project", ref, found)
	case berth.ProjectID(ref).Valid() == nil:
		return berth.ProjectID(ref), false, nil
	}
	return "", false,
		fmt.Errorf("project %q %w: it is neither an id nor the name of a project; berth project ls lists them", ref,
			errNotFound)
}

// findKeys returns the keys that refs select: ids, or the starts or ends of ids.
func findKeys(ctx context.Context, state *state.Dir, refs []string) ([]berth.KeyID, error) {
	all, err := state.Projects.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]berth.KeyID, len(refs))
	for i, ref := range refs {
		ref = strings.TrimSpace(ref)
		var found []string
		for _, k := range all {
			if string(k.ID) == ref {
				found = []string{ref}
				break
			}
			if matches(strings.TrimPrefix(string(k.ID), berth.PrefixKey), strings.TrimPrefix(ref, berth.PrefixKey)) {
				found = append(found, string(k.ID))
			}
		}
		switch len(found) {
		case 0:
			ids[i] = berth.KeyID(ref) // which does not exist
		case 1:
			ids[i] = berth.KeyID(found[0])
		default:
			return nil, ambiguous("key", ref, found)
		}
	}
	return ids, nil
}

// A projectRow is a project as berth project ls prints it.
type projectRow struct {
	*berth.Project
	Keys        int   `json:"keys"`
	StoredBytes int64 `json:"stored_bytes"`
}

func newProjectLimit(open opener) *cobra.Command {
	var clear bool
	var given func() config.Limits
	cmd := &cobra.Command{
		Use:   "limit PROJECT",
		Short: "Set the limits of a project",
		Long: `Set limits of a project, which is selected by its id or its name. They override those of the
configuration. "none" means no limit. Other limits of the project stay unchanged.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			limits := given()
			if err := limits.Check(); err != nil {
				return badUsage("--%w", err)
			}
			return open.with(cmd.Context(), func(state *state.Dir) error {
				id, err := knownProject(cmd.Context(), state, args[0])
				if err != nil {
					return err
				}
				if clear {
					if _, err := state.Projects.ClearLimits(cmd.Context(), id); err != nil {
						return err
					}
				}
				p, err := state.Projects.SetLimits(cmd.Context(), id, limits.ForProject())
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), inWords(p.Limits))
				warnUnpriced(cmd.ErrOrStderr(), limits.CostPerMonth)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&clear, "clear", false, "first remove all limits of the project")
	given = limitsFlags(cmd)
	return cmd
}

func newProjectArchive(open opener) *cobra.Command {
	var yes *bool
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
			return open.with(cmd.Context(), func(dir *state.Dir) error {
				id, err := findProject(cmd.Context(), dir, args[0])
				if err != nil {
					return err
				}
				if !*yes {
					if err := confirm(
						fmt.Sprintf("Archive %s? Its keys are refused and all its data is deleted, for ever.", id),
						args[0]); err != nil {
						return err
					}
				}
				erased, err := dir.Archive(cmd.Context(), id)
				if errors.Is(err, state.ErrNoProject) {
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
	yes = yesFlag(cmd)
	return cmd
}

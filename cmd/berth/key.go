package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newKey() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Create, list, limit and remove API keys"}
	open := stateFlag(cmd)
	cmd.AddCommand(newKeyCreate(open), newKeyLs(open), newKeyLimit(open), newKeyUpdate(open), newKeyRm(open),
		newKeyRotateSeal())
	return cmd
}

func newKeyCreate(open opener) *cobra.Command {
	var req project.KeyRequest
	var of, role string
	var admin bool
	var cost func() *config.Money
	var created func(text string, object any) error
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a key and print its secret, once",
		Long: `Create a key and print its secret. Only its SHA-256 is stored. Once a key exists, a
running server requires one from every client.

A key belongs to a project. An admin key belongs to none: it serves the routes under
/v1/organization, which create and remove keys and projects.

Without --role, the key may do all that a key of its project may. With --owner, it never may
do more than that person, and ends with the person's access.

  berth key create --note "dashboard of the ops team" --role viewer --expires 90d
  berth key create --name approvals --role approver --owner ada@example.com
  berth key create --route 'POST /v1/responses' --tool web_search`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Lifetime < 0 {
				return badUsage("--expires %s: must not be negative; 0 means no expiry", req.Lifetime)
			}
			roles := berth.ProjectRoles
			if admin {
				roles = berth.OrganizationRoles
			}
			if req.Role = berth.Role(role); role != "" && !slices.Contains(roles, req.Role) {
				return badUsage("--role %s: must be one of %v", role, roles)
			}
			req.Limits.CostPerMonth = (*berth.Amount)(cost())
			if open.isNew() {
				if _, err := project.ParseID("--project", of); err != nil {
					return usageError{err}
				}
			}
			return open.withNew(cmd.Context(), func(state *state.Dir) error {
				owner, err := findProject(cmd.Context(), state, of)
				if admin {
					owner, err = berth.AdminProject, nil
				}
				if err != nil {
					return err
				}
				k, secret, err := state.Projects.CreateKey(cmd.Context(), owner, req)
				if err != nil {
					return err
				}
				names, err := readProjectNames(cmd.Context(), state)
				if err != nil {
					return err
				}
				err = created(secret, struct {
					keyRow
					Secret string `json:"secret"`
				}{rowOf(k, names), secret})
				if err != nil {
					return err
				}
				warnUnpriced(cmd.ErrOrStderr(), cost())
				return nil
			})
		},
	}
	created = createdFlag(cmd)
	cmd.Flags().StringVar(&of, "project", string(berth.DefaultProject), "project of the key")
	cmd.Flags().BoolVar(&admin, "admin", false, "create an admin key")
	cmd.MarkFlagsMutuallyExclusive("admin", "project")
	cmd.Flags().StringVar(&req.Name, "name", "", "name of the key")
	cmd.Flags().StringVar(&req.Note, "note", "", "what the key is for")
	cmd.Flags().StringVar(&req.Owner, "owner", "", "id or address of the person who answers for the key")
	cmd.Flags().StringVar(&role, "role", "", "viewer, runner, approver or maintainer; of an admin key: provisioner, auditor or admin")
	cmd.Flags().StringArrayVar(&req.Scope.Routes, "route", nil,
		"route that the key may use, such as 'POST /v1/responses' or 'GET *'; may be repeated")
	cmd.Flags().StringArrayVar(&req.Scope.Tools, "tool", nil,
		"type of tools that requests of the key may have, such as web_search; may be repeated")
	cost = costFlag(cmd, keyCostUsage)
	cmd.MarkFlagsMutuallyExclusive("admin", "cost-per-month")
	durationFlag(cmd, &req.Lifetime, "expires", "", 0, "lifetime, such as 30d or 12h; 0 means no expiry")
	return cmd
}

const keyCostUsage = "cost of the key's requests to models per calendar month (UTC), in the currency of the prices, such as 2.50"

func newKeyLimit(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit KEY",
		Short: "Set the limit of a key",
		Long: `Set how much a key may spend in a calendar month (UTC). "none" means no limit. The limits
of the key's project apply as well. A running server applies the change to the next request.`,
		Args: cobra.ExactArgs(1),
	}
	cost := costFlag(cmd, keyCostUsage)
	if err := cmd.MarkFlagRequired("cost-per-month"); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return open.with(cmd.Context(), func(state *state.Dir) error {
			var limits berth.KeyLimits
			if m := cost(); *m >= 0 {
				limits.CostPerMonth = (*berth.Amount)(m)
			}
			ids, err := findKeys(cmd.Context(), state, args)
			if err != nil {
				return err
			}
			change := project.KeyChange{Limits: &limits}
			if _, err := state.Projects.UpdateKey(cmd.Context(), ids[0], change); err != nil {
				return err
			}
			warnUnpriced(cmd.ErrOrStderr(), cost())
			return nil
		})
	}
	return cmd
}

func newKeyLs(open opener) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List keys", Args: cobra.NoArgs}
	l := listFlags[keyRow](cmd, "project=proj_y", 0)
	of := cmd.Flags().String("project", "", "list only the keys of this project")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return open.with(cmd.Context(), func(state *state.Dir) error {
			keys, err := state.Projects.ListKeys(cmd.Context())
			if err != nil {
				return err
			}
			names, err := readProjectNames(cmd.Context(), state)
			if err != nil {
				return err
			}
			var only berth.ProjectID
			if *of != "" {
				if only, err = knownProject(cmd.Context(), state, *of); err != nil {
					return err
				}
			}
			var rows []keyRow
			for _, k := range keys {
				if only == "" || k.Project == only {
					rows = append(rows, rowOf(k, names))
				}
			}
			heading := "ID\tPROJECT\tNAME\tROLE\tSECRET\tCREATED\tEXPIRES\tUSED\tOWNER\tNOTE"
			now := time.Now()
			limited := slices.ContainsFunc(keys, func(k *berth.Key) bool { return k.Limits.CostPerMonth != nil })
			if limited {
				heading += "\tPER MONTH"
			}
			return printList(cmd.OutOrStdout(), l, rows, func(k keyRow) string { return string(k.ID) },
				heading, func(k keyRow) string {
					expires := "never"
					if k.ExpiresAt != nil {
						expires = l.until(now, *k.ExpiresAt)
					}
					used := "never"
					if k.UsedAt != nil {
						used = l.since(now, *k.UsedAt)
					}
					line := fmt.Sprintf("%s\t%s\t%s\t%s\t…%s\t%s\t%s\t%s\t%s\t%s", l.id(string(k.ID)),
						l.cut(names.shown(l, k.Project), 16), l.cut(inLine(k.Name), 12), k.may(), k.Tail,
						l.since(now, k.CreatedAt), expires, used, l.id(k.Owner), l.cut(inLine(k.Note), 24))
					if limited {
						line += "\t" + amount(k.Limits.CostPerMonth)
					}
					return line
				})
		})
	}
	return cmd
}

// amount returns an amount of money as tables show it.
func amount(a *berth.Amount) string {
	if a == nil {
		return "-"
	}
	return a.String()
}

// A keyRow is a key as berth key ls prints it. Times are Unix seconds.
type keyRow struct {
	ID        berth.KeyID     `json:"id"`
	Project   berth.ProjectID `json:"project"`
	Name      string          `json:"name"`
	Tail      string          `json:"tail"` // the last characters of the secret
	CreatedAt int64           `json:"created_at"`
	ExpiresAt *int64          `json:"expires_at"`
	UsedAt    *int64          `json:"last_used_at"` // a few minutes late
	Owner     string          `json:"owner,omitempty"`
	Note      string          `json:"note,omitempty"`
	Role      berth.Role      `json:"role,omitempty"`
	Scope     berth.KeyScope  `json:"scope,omitzero"`
	Limits    berth.KeyLimits `json:"limits,omitzero"`

	ProjectName string `json:"project_name,omitempty"`
}

// may returns the role of a key as tables show it: with a star if it has a scope.
func (r keyRow) may() string {
	role := cmp.Or(string(r.Role), "-")
	if !r.Scope.Empty() {
		role += "*"
	}
	return role
}

func rowOf(k *berth.Key, names projectNames) keyRow {
	row := keyRow{ID: k.ID, Project: k.Project, Name: k.Name, Tail: k.Tail, CreatedAt: k.CreatedAt, Owner: k.Owner,
		Note: k.Note, Role: k.Role, Scope: k.Scope, Limits: k.Limits, ProjectName: names[k.Project]}
	if k.LastUsedAt != 0 {
		row.UsedAt = &k.LastUsedAt
	}
	if k.ExpiresAt != 0 {
		row.ExpiresAt = &k.ExpiresAt
	}
	return row
}

func newKeyRm(open opener) *cobra.Command {
	var last bool
	cmd := &cobra.Command{
		Use:   "rm KEY...",
		Short: "Remove keys by id",
		Long: `Remove keys by id or a part of one. The server refuses them from the next request on.

Removing the last key requires --last. A running server then refuses every request
until a key is created. A server started without a key serves every user of this
machine, and listens on loopback addresses only.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return open.with(cmd.Context(), func(state *state.Dir) error {
				ids, err := findKeys(cmd.Context(), state, args)
				if err != nil {
					return err
				}
				left, err := state.Projects.RevokeKeys(cmd.Context(), ids, last)
				if errors.Is(err, project.ErrLastKey) {
					return errors.New(
						"this is the last key: a server started without a key serves every user of this machine; create another key first, or use --last")
				}
				if err != nil {
					return err
				}
				if left == 0 {
					fmt.Fprintln(cmd.ErrOrStderr(),
						"No key is left: a running server refuses every request; a server started now serves every user of this machine.")
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "allow removing the last key")
	return cmd
}

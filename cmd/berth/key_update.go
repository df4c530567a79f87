package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/state"
)

func newKeyUpdate(open opener) *cobra.Command {
	var name, note, owner, role string
	var scope berth.KeyScope
	var life time.Duration
	var unscoped bool
	cmd := &cobra.Command{
		Use:   "update KEY",
		Short: "Change the role, owner, scope, note, name or expiry of a key",
		Long: `Change a key. What no flag names stays. The secret stays the same.

A running server applies the change to the next request, and ends within seconds the requests,
terminals and streams of a key that may do less than before. The audit record has the old and
the new role.`,
		Example: "  berth key update key_… --role viewer --expires 30d",
		Args:    cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&role, "role", "", "viewer, runner, approver or maintainer; of an admin key: provisioner, auditor or admin")
	flags.StringVar(&owner, "owner", "", `id or address of the person who answers for the key; "" for nobody`)
	flags.StringVar(&name, "name", "", "name of the key")
	flags.StringVar(&note, "note", "", "what the key is for")
	flags.StringArrayVar(&scope.Routes, "route", nil, "replaces the routes that the key may use; may be repeated")
	flags.StringArrayVar(&scope.Tools, "tool", nil, "replaces the types of tools that it may use; may be repeated")
	flags.BoolVar(&unscoped, "no-scope", false, "remove the routes and tools that narrow the key")
	cmd.MarkFlagsMutuallyExclusive("no-scope", "route")
	cmd.MarkFlagsMutuallyExclusive("no-scope", "tool")
	durationFlag(cmd, &life, "expires", "", 0, "lifetime from now on, such as 30d or 12h; 0 means no expiry")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var change project.KeyChange
		for flag, field := range map[string]struct {
			to   **string
			from *string
		}{"name": {&change.Name, &name}, "note": {&change.Note, &note}, "owner": {&change.Owner, &owner}} {
			if flags.Changed(flag) {
				*field.to = field.from
			}
		}
		if flags.Changed("role") {
			r := berth.Role(role)
			change.Role = &r
		}
		if flags.Changed("expires") {
			if life < 0 {
				return badUsage("--expires %s: must not be negative; 0 means no expiry", life)
			}
			change.Lifetime = &life
		}
		if flags.Changed("route") || flags.Changed("tool") || unscoped {
			change.Scope = &scope
		}
		if change == (project.KeyChange{}) {
			return badUsage("nothing to change: use --role, --owner, --name, --note, --route, --tool, --no-scope or --expires")
		}
		return open.with(cmd.Context(), func(state *state.Dir) error {
			ids, err := findKeys(cmd.Context(), state, args)
			if err != nil {
				return err
			}
			_, err = state.Projects.UpdateKey(cmd.Context(), ids[0], change)
			return err
		})
	}
	return cmd
}

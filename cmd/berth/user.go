package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/people"
	"github.com/berth-run/berth/server/state"
)

func newUser() *cobra.Command {
	cmd := &cobra.Command{Use: "user", Short: "List, sign out and deactivate the people who sign in",
		Long: `List, sign out and deactivate the people who sign in with an identity provider
(sign_in in the configuration). A record is made when somebody signs in for the first time.`}
	open := stateFlag(cmd)
	cmd.AddCommand(newUserLs(open),
		newUserChange(open, "sign-out", "End all sessions of users",
			`End all sessions of users. They can sign in again. A running server refuses the
tokens of the sessions from the next request on and ends running requests within seconds.`,
			func(ctx context.Context, s *people.Service, id string) error {
				_, err := s.EndSessions(ctx, id)
				return err
			}),
		newUserChange(open, "deactivate", "End the access of users",
			`End the access and all sessions of users, until berth user activate. A running server
refuses them from the next request on and ends running requests within seconds. So
are keys that they own: berth key ls lists the owners.`,
			func(ctx context.Context, s *people.Service, id string) error { return s.Deactivate(ctx, id) }),
		newUserChange(open, "activate", "Let deactivated users sign in again",
			"Let users who were deactivated sign in again.",
			func(ctx context.Context, s *people.Service, id string) error { return s.Activate(ctx, id) }))
	return cmd
}

func newUserChange(open opener, use, short, long string,
	change func(context.Context, *people.Service, string) error) *cobra.Command {
	return &cobra.Command{Use: use + " USER...", Short: short, Long: long + `

A USER is an id, the start of one, or an email address.`, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return open.with(cmd.Context(), func(state *state.Dir) error {
				var ids []string
				for _, arg := range args {
					p, err := state.People.Find(cmd.Context(), arg)
					if err != nil {
						return err
					}
					ids = append(ids, p.ID)
				}
				for _, id := range ids {
					if err := change(cmd.Context(), state.People, id); err != nil {
						return err
					}
				}
				return nil
			})
		}}
}

func newUserLs(open opener) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List users", Args: cobra.NoArgs}
	l := listFlags[people.Person](cmd, "deactivated=true", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return open.with(cmd.Context(), func(state *state.Dir) error {
			found, err := state.People.List(cmd.Context())
			if err != nil {
				return err
			}
			var rows []people.Person
			for _, p := range found {
				rows = append(rows, *p)
			}
			now := time.Now()
			return printList(cmd.OutOrStdout(), l, rows, func(p people.Person) string { return p.ID },
				"ID\tEMAIL\tNAME\tSTATUS\tSIGNED IN\tGROUPS", func(p people.Person) string {
					status := "active"
					if !p.Active() {
						status = "deactivated"
					}
					return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", l.id(p.ID), inLine(p.Email), l.cut(inLine(p.Name), 16),
						status, l.since(now, p.SignedInAt), l.cut(inLine(strings.Join(p.AllGroups(), " ")), 24))
				})
		})
	}
	return cmd
}

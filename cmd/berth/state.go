package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
)

// An opener opens the state directory of --state.
type opener func(context.Context) (*server.State, error)

// stateFlag adds --state to a command and its subcommands.
func stateFlag(cmd *cobra.Command) opener {
	state := cmd.PersistentFlags().String("state", server.DefaultState(), "directory for all state")
	return func(ctx context.Context) (*server.State, error) { return server.Open(ctx, *state) }
}

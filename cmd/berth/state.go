package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/store/sqlite"
)

// storeFlag adds --state to a command and those below it, and returns how to open
// the store there. A server may use it at the same time.
func storeFlag(cmd *cobra.Command) func(context.Context) (*sqlite.DB, error) {
	state := cmd.PersistentFlags().String("state", server.DefaultState(), "directory for all state")
	return func(ctx context.Context) (*sqlite.DB, error) {
		return server.OpenStore(ctx, *state, sqlite.Options{})
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
)

// An opener opens the state directory of --state.
type opener func(context.Context) (*server.State, error)

// stateFlag adds --state to a command and its subcommands.
func stateFlag(cmd *cobra.Command) opener {
	state := cmd.PersistentFlags().String("state", server.DefaultState(), "directory for all state")
	return func(ctx context.Context) (*server.State, error) {
		_, missing := os.Stat(filepath.Join(*state, "berth.db"))
		opened, err := server.Open(ctx, *state)
		if err == nil && errors.Is(missing, fs.ErrNotExist) {
			fmt.Fprintf(cmd.ErrOrStderr(), "created a new state directory at %s\n", *state)
		}
		return opened, err
	}
}

// with calls f with the open state directory and closes it.
func (open opener) with(ctx context.Context, f func(*server.State) error) error {
	state, err := open(ctx)
	if err != nil {
		return err
	}
	defer state.Close()
	return f(state)
}

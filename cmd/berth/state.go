package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// An opener opens the state directory of --state.
type opener struct {
	state *string
	cmd   *cobra.Command
}

// stateFlag adds --state to a command and its subcommands.
func stateFlag(cmd *cobra.Command) opener {
	return opener{cmd.PersistentFlags().String("state", config.DefaultState(), "directory for all state"), cmd}
}

// with calls f with the open state directory and closes it. It returns an error if the directory
// has no database.
func (o opener) with(ctx context.Context, f func(*state.Dir) error) error {
	if o.isNew() {
		return noState(*o.state)
	}
	return o.call(ctx, f)
}

// withNew is like with, but creates the database if it does not exist. A directory that --state
// names must exist, because the name may be mistyped.
func (o opener) withNew(ctx context.Context, f func(*state.Dir) error) error {
	if !o.isNew() {
		return o.call(ctx, f)
	}
	if _, err := os.Stat(*o.state); errors.Is(err, fs.ErrNotExist) && o.cmd.PersistentFlags().Changed("state") {
		return fmt.Errorf(
			"the state directory %s does not exist; correct --state, or create the directory first: mkdir -m 700 %[1]s",
			*o.state)
	}
	fmt.Fprintf(o.cmd.ErrOrStderr(), "creating a new state directory at %s\n", *o.state)
	return o.call(ctx, f)
}

// noState returns the error for a state directory that no server has used.
func noState(state string) error {
	return fmt.Errorf("no server has used the state directory %s; name another one with --state or BERTH_STATE", state)
}

func (o opener) isNew() bool {
	return !state.HasDatabase(*o.state)
}

func (o opener) call(ctx context.Context, f func(*state.Dir) error) error {
	state, err := state.Open(ctx, *o.state)
	if err != nil {
		return err
	}
	defer state.Close()
	return f(state)
}

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

// withNew is like with, but creates the database if it does not exist, for the key that a server on
// other addresses than loopback needs before its first start. Only berth serve and berth restore make
// the directory, because its name may be mistyped.
func (o opener) withNew(ctx context.Context, f func(*state.Dir) error) error {
	if !o.isNew() {
		return o.call(ctx, f)
	}
	if err := mustExist(*o.state); err != nil {
		return err
	}
	fmt.Fprintf(o.cmd.ErrOrStderr(), "creating the database in %s\n", *o.state)
	return o.call(ctx, f)
}

// mustExist returns an error if a state directory does not exist.
func mustExist(state string) error {
	_, err := os.Stat(state)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the state directory %s does not exist. berth serve makes it. Correct --state or BERTH_STATE, "+
			"or make it first: mkdir -m 700 %[1]s", state)
	}
	return err
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

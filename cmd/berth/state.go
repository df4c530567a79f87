package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/sqlite"
)

// storeFlag adds --state to a command and those below it, and returns how to open
// the store there. A server may use it at the same time.
func storeFlag(cmd *cobra.Command) func(context.Context) (*sqlite.DB, error) {
	state := cmd.PersistentFlags().String("state", defaultState(), "directory for all state")
	return func(ctx context.Context) (*sqlite.DB, error) {
		return openStore(ctx, *state, sqlite.Options{})
	}
}

// openStore opens the store of a state directory, which it makes, with its key.
func openStore(ctx context.Context, state string, opts sqlite.Options) (_ *sqlite.DB, err error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	if opts.Key, err = sealKey(state); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, filepath.Join(state, "berth.db"), &opts)
}

var projectPattern = regexp.MustCompile(`^proj_[A-Za-z0-9_-]{1,60}$`)

// projectID checks a project's id; what names it in the error.
func projectID(what, id string) (berth.ProjectID, error) {
	if !projectPattern.MatchString(id) {
		return "", fmt.Errorf("%s %q must match %s", what, id, projectPattern)
	}
	return berth.ProjectID(id), nil
}

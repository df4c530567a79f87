package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/store/sqlite"
)

// checkState checks that the state directory is one or can be created.
func (c *Config) checkState() error {
	path, err := filepath.Abs(c.State)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	for at := path; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue
		case errors.Is(err, unix.ENOTDIR):
			continue // the file is found above
		case err == nil && !st.IsDir():
			return fmt.Errorf("state: %s is not a directory", at)
		}
		return nil // what else is wrong with it, the server says when it uses it
	}
}

// VerifyState returns an error if the state directory cannot be used. It changes nothing there, and returns nil if the
// directory does not exist: the check may run on another machine. It does not connect to a PostgreSQL database, as
// MachineWarnings does.
func (c *Config) VerifyState(ctx context.Context) error {
	if err := errRestoring(c.State); err != nil {
		return err
	}
	if _, err := storeURL(c.State, c.Store.URL); err != nil {
		return c.in(fmt.Errorf("store.url: %w", err))
	}
	file := filepath.Join(c.State, "berth.db")
	if _, err := os.Stat(file); err != nil || c.Store.URL != "" {
		return nil
	}
	keys, err := sqlite.CountKeys(ctx, file)
	if err == nil && keys == 0 && !isLoopback(c.Server.Listen) {
		return c.in(fmt.Errorf("server.listen: %w", noKey(c.State, c.Server.Listen)))
	}
	return err
}

// noKey is the error for a server without an API key at an address that other machines reach.
func noKey(state, listen string) error {
	return fmt.Errorf("there is no API key, but %s is not a loopback address: first run berth key create --state %s",
		listen, state)
}

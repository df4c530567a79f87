package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/store/sqlite"
)

// Verify returns an error if the state directory cannot be used. It changes nothing there, and returns nil if the
// directory does not exist: the check may run on another machine. It does not connect to a PostgreSQL database, as
// MachineWarnings does.
func Verify(ctx context.Context, c *config.Config) error {
	if err := errRestoring(c.State); err != nil {
		return err
	}
	if _, err := StoreURL(c.State, c.Store.URL); err != nil {
		return c.In(fmt.Errorf("store.url: %w", err))
	}
	file := filepath.Join(c.State, "berth.db")
	if _, err := os.Stat(file); err != nil || c.Store.URL != "" {
		return nil
	}
	keys, err := sqlite.CountKeys(ctx, file)
	if err == nil && keys == 0 && c.Server.NeedsKey() {
		return c.In(fmt.Errorf("server.listen: %w", NoKeyError(c.State, c.Server.Listen)))
	}
	return err
}

// NoKeyError is the error for a server without an API key at an address that other machines reach.
func NoKeyError(state, listen string) error {
	return fmt.Errorf("there is no API key, but %s is not a loopback address: first run berth key create --state %s, "+
		"or set server.await_key", listen, state)
}

// VerifyBlobs checks that the credentials of the bucket can be found on this machine.
func VerifyBlobs(c *config.Config) error {
	if c.Blobs == "" {
		return nil
	}
	at, err := remote.Parse(c.Blobs)
	if err == nil {
		err = remote.CheckCredentials(at)
	}
	if err != nil {
		return c.In(fmt.Errorf("blobs: %w", err))
	}
	return nil
}

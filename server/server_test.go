package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/berth-run/berth/sandbox/local"
)

// destroyAll ends the sandboxes that a script left to the next start of its server.
func destroyAll(t *testing.T, state string) {
	config := &Config{Driver: local.Name}
	d, err := OpenDriver(state, config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Error(err)
		return
	}
	ids, err := d.List(context.Background())
	for _, id := range ids {
		err = errors.Join(err, d.Destroy(context.Background(), id))
	}
	if err != nil {
		t.Error(err)
	}
}

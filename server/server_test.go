package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/berth-run/berth/sandbox/local"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
)

// destroyAll destroys the sandboxes that a stopped server left.
func destroyAll(t *testing.T, state string) {
	config := &config.Config{Driver: local.Name}
	d, err := driver.Open(state, config, slog.New(slog.DiscardHandler))
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

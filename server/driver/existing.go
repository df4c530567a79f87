package driver

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/gvisor"
	"github.com/berth-run/berth/sandbox/microvm"
	"github.com/berth-run/berth/server/config"
)

// Existing gives access to sandboxes that a previous process left: it can read, freeze and
// end them without writing to their volume.
type Existing interface {
	sandbox.Freezer
	List(ctx context.Context) ([]string, error)
	Stats(ctx context.Context, id string) (sandbox.Stats, error)
}

// OpenExisting returns the sandboxes of a state directory. It returns nil if there are none, or
// if the driver cannot freeze them. Docker's sandboxes are on a volume that Berth does not watch.
func OpenExisting(state string, config *config.Config, log *slog.Logger) (Existing, error) {
	switch config.Driver {
	case "gvisor":
		if d, err := gvisor.OpenExisting(filepath.Join(state, "gvisor"), log); d != nil || err != nil {
			return d, err
		}
	case "microvm":
		if d, err := microvm.OpenExisting(filepath.Join(state, "microvm"), log); d != nil || err != nil {
			return d, err
		}
	}
	return nil, nil
}

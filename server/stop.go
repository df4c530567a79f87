package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store/sqlite"
)

// EndContainers ends all containers of a state directory and unmounts its volumes. The caller
// holds the directory's lock.
func EndContainers(ctx context.Context, dir string, config *config.Config, log *slog.Logger) (n int, err error) {
	calm := &calm{state: dir, config: config, log: log, all: true}
	space, err := openSpace(dir, config, log, calm.run)
	if err != nil {
		return 0, err
	}
	server := ""
	if config.Cluster.Listen != "" {
		if server, err = state.NodeID(dir); err != nil {
			return 0, err
		}
	}
	db, err := state.OpenDatabase(ctx, dir, state.Use{Options: sqlite.Options{Log: log, Room: space},
		URL: config.Store.URL, Serve: true, Shared: server != ""})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	keys, err := state.ReadSealKeys(dir)
	if err != nil {
		return 0, err
	}
	sealer := keys.Keychain()
	record, err := state.OpenAudit(dir, log)
	if err != nil {
		return 0, err
	}
	defer record.Close()
	record.OnFull(space.MakeRoom)
	volumes, err := volume.New(volume.Options{Dir: filepath.Join(dir, "volumes"), Objects: db, Seal: sealer,
		Audit: record, Log: log})
	if err != nil {
		return 0, err
	}
	if err := volumes.Sweep(ctx); err != nil {
		return 0, err
	}
	isolation, err := driver.Open(dir, config, log)
	if err != nil {
		return 0, err
	}
	containers, err := container.New(container.Options{Server: server, Store: db, Driver: isolation, Log: log,
		Seal: sealer, Audit: record, Volumes: volumes,
		Template: func(string) (container.Template, error) { return container.Template{}, errEnding },
		OpenFile: func(context.Context, berth.ProjectID, berth.FileID) (io.ReadCloser, *berth.File, error) {
			return nil, nil, errEnding
		}})
	if err != nil {
		return 0, err
	}
	n, err = containers.End(ctx)
	return n, errors.Join(err, containers.Close(), volumes.Close())
}

var errEnding = errors.New("all containers are being ended")

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/store/sqlite"
)

// Stop stops the server of a state directory, if one runs, and waits for its end. It returns the
// id of the stopped process, or 0, and holds the directory's lock until unlock is called.
func Stop(ctx context.Context, state string, patience time.Duration) (pid int, unlock func() error, err error) {
	if !HasDatabase(state) {
		return 0, nil, fmt.Errorf("%s is not a state directory: it has no berth.db", state)
	}
	f, err := statefile.OpenFile(filepath.Join(state, "lock"), os.O_RDWR|unix.O_NOFOLLOW)
	if err != nil {
		return 0, nil, err
	}
	locked := func() bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
	if locked() {
		return 0, f.Close, nil
	}
	text, err := io.ReadAll(io.LimitReader(f, 32))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || perr != nil || pid <= 1 {
		return 0, nil,
			errors.Join(
				fmt.Errorf("%s is in use by a process that its lock file does not name; stop that process first",
					state), f.Close())
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return 0, nil, errors.Join(fmt.Errorf("stop process %d: %w", pid, err), f.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if locked() {
				return pid, f.Close, nil
			}
		case <-ctx.Done():
			return 0, nil, errors.Join(fmt.Errorf("process %d still uses %s", pid, state), f.Close())
		}
	}
}

// EndContainers ends all containers of a state directory and unmounts its volumes. The caller
// holds the directory's lock.
func EndContainers(ctx context.Context, state string, config *Config, log *slog.Logger) (n int, err error) {
	calm := &calm{state: state, config: config, log: log, all: true}
	space, err := openSpace(state, config, log, calm.run)
	if err != nil {
		return 0, err
	}
	key, err := sealKey(state)
	if err != nil {
		return 0, err
	}
	server := ""
	if config.Cluster.Listen != "" {
		if server, err = nodeID(state); err != nil {
			return 0, err
		}
	}
	db, err := openDatabase(ctx, state, databaseUse{Options: sqlite.Options{Log: log, Room: space},
		url: config.Store.URL, serve: true, shared: server != ""})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	record, err := openRecord(state, log)
	if err != nil {
		return 0, err
	}
	defer record.Close()
	record.OnFull(space.MakeRoom)
	volumes, err := volume.New(volume.Options{Dir: filepath.Join(state, "volumes"), Objects: db, Seal: seal.New(key),
		Audit: record, Log: log})
	if err != nil {
		return 0, err
	}
	if err := volumes.Sweep(ctx); err != nil {
		return 0, err
	}
	isolation, err := OpenDriver(state, config, log)
	if err != nil {
		return 0, err
	}
	containers, err := container.New(container.Options{Server: server, Store: db, Driver: isolation, Log: log,
		Seal: seal.New(key), Audit: record, Volumes: volumes,
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

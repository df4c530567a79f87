package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/store/sqlite"
)

func newStop() *cobra.Command {
	var state, config string
	var all bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the server of a state directory, with --all its containers too",
		Long: `Stop the server that uses --state, in order, and wait until it has ended.
Containers and what runs in them outlive it: the next berth serve goes on with them.

With --all all containers of the state directory end as well, for good, and what is
left of them is removed: processes, mounts, cgroups, loop devices. Their files are
gone unless they are in a snapshot or a volume, which both stay. No server need run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			state, err := filepath.Abs(state)
			if err != nil {
				return err
			}
			unlock, err := stopServer(ctx, state, patience)
			if err != nil {
				return err
			}
			defer unlock()
			if !all {
				return nil
			}
			c, err := loadConfig(config)
			if err != nil {
				return err
			}
			n, err := endContainers(ctx, state, c, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d containers ended\n", n)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState(), "directory for all state")
	cmd.Flags().StringVar(&config, "config", "", "configuration file of the server, which names the driver")
	cmd.Flags().BoolVar(&all, "all", false, "end all containers too")
	cmd.Flags().DurationVar(&patience, "patience", time.Minute, "how long to wait for the server's end")
	return cmd
}

// stopServer asks the server of a state directory to stop, if one runs, and returns when
// it has, with its lock.
func stopServer(ctx context.Context, state string, patience time.Duration) (unlock func() error, err error) {
	if _, err := os.Stat(filepath.Join(state, "berth.db")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no state directory: it has no berth.db", state)
	}
	f, err := statefile.OpenFile(filepath.Join(state, "lock"), os.O_RDWR|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	locked := func() bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
	if locked() {
		return f.Close, nil
	}
	text, err := io.ReadAll(io.LimitReader(f, 32))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || perr != nil || pid <= 1 {
		return nil, errors.Join(fmt.Errorf("%s is in use, and its file lock does not say by which process: stop that first", state), f.Close())
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, errors.Join(fmt.Errorf("stop process %d: %w", pid, err), f.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if locked() {
				return f.Close, nil
			}
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("process %d still uses %s", pid, state), f.Close())
		}
	}
}

// endContainers ends all containers of a state directory that no server uses, and unmounts
// its volumes.
func endContainers(ctx context.Context, state string, config *Config, log *slog.Logger) (n int, err error) {
	key, err := sealKey(state)
	if err != nil {
		return 0, err
	}
	db, err := openStore(ctx, state, sqlite.Options{Log: log})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	record, err := openRecord(state, log)
	if err != nil {
		return 0, err
	}
	defer record.Close()
	volumes, err := openVolumes(ctx, state, volume.Options{Objects: db, Seal: seal.New(key), Audit: record}, log)
	if err != nil {
		return 0, err
	}
	isolation, err := openDriver(state, config, log)
	if err != nil {
		return 0, err
	}
	keeper, err := container.New(container.Options{Store: db, Driver: isolation, Log: log, Seal: seal.New(key), Audit: record, Volumes: volumes,
		Template: func(string) (container.Template, error) { return container.Template{}, errEnding },
		OpenFile: func(context.Context, berth.ProjectID, berth.FileID) (io.ReadCloser, *berth.File, error) {
			return nil, nil, errEnding
		}})
	if err != nil {
		return 0, err
	}
	n, err = keeper.End(ctx)
	return n, errors.Join(err, keeper.Close(), volumes.Close())
}

var errEnding = errors.New("all containers are being ended")

package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/statefile"
	"golang.org/x/sys/unix"
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

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

var _ sandbox.Freezer = (*Driver)(nil)

// freezeTimeout bounds Freeze and Kill if ctx has no deadline.
const freezeTimeout = 5 * time.Second

// OpenExisting returns a driver of the sandboxes in a state directory without writing to its
// volume, or nil if it has no sandboxes of its own. Only List, Stats and the methods of
// sandbox.Freezer may be called.
func OpenExisting(stateDir string, log *slog.Logger) (*Driver, error) {
	stateDir, err := filepath.EvalSymlinks(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("microvm: state directory: %w", err)
	}
	d := &Driver{opts: Options{StateDir: stateDir}, log: log}
	var found bool
	if d.instance, found, err = sandbox.FindInstance(stateDir); err != nil || !found {
		return nil, err
	}
	if d.dir, err = sandbox.FindDir(filepath.Join(stateDir, "sandboxes")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("microvm: state directory: %w", err)
	}
	if d.bootID, err = sandbox.BootID(); err != nil {
		return nil, fmt.Errorf("microvm: %w", err)
	}
	if d.cgroups, err = host.FindHierarchy(); err != nil {
		return nil, fmt.Errorf("microvm: %w", err)
	}
	return d, nil
}

// Freeze stops QEMU, which makes all of the machine's writes to its disk.
func (d *Driver) Freeze(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	pid, err := d.signal(id, unix.SIGSTOP)
	if err == nil && pid != 0 {
		err = host.AwaitStopped(ctx, pid)
	}
	if err != nil {
		return fmt.Errorf("microvm: freeze %s: %w", id, err)
	}
	return nil
}

// Thaw continues QEMU.
func (d *Driver) Thaw(_ context.Context, id string) error {
	if _, err := d.signal(id, unix.SIGCONT); err != nil {
		return fmt.Errorf("microvm: thaw %s: %w", id, err)
	}
	return nil
}

// Kill ends QEMU and empties the file of its disk.
func (d *Driver) Kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	s, err := d.find(id)
	if err == nil {
		err = s.cgroup.Kill(ctx)
	}
	if err == nil {
		err = os.Truncate(s.path(diskFile), 0)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("microvm: kill %s: %w", id, err)
	}
	return nil
}

func (d *Driver) signal(id string, sig unix.Signal) (pid int, err error) {
	s, err := d.find(id)
	if err != nil {
		return 0, err
	}
	return s.processes.Signal(s.id, func() (int, bool, error) { return host.FindIn(s.cgroup, s.path("pid")) }, sig)
}

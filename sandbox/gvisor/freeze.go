package gvisor

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
		return nil, fmt.Errorf("gvisor: state directory: %w", err)
	}
	d := &Driver{opts: Options{StateDir: stateDir}, log: log, rootless: os.Geteuid() != 0}
	var found bool
	if d.instance, found, err = sandbox.FindInstance(stateDir); err != nil || !found {
		return nil, err
	}
	if d.dir, err = sandbox.FindDir(filepath.Join(stateDir, "sandboxes")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: state directory: %w", err)
	}
	if d.bootID, err = sandbox.BootID(); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	if !d.rootless {
		if d.cgroups, err = host.FindHierarchy(); err != nil {
			return nil, fmt.Errorf("gvisor: %w", err)
		}
	}
	return d, nil
}

// Freeze stops the sentry. Programs in the sandbox run on until their next system call. They
// make system calls, and so all writes, through the sentry. Freeze does not stop the programs,
// because they do not survive that (docs/decisions/0002-gvisor-pause.md).
func (d *Driver) Freeze(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	pids, err := d.signal(id, unix.SIGSTOP)
	for _, pid := range pids {
		err = errors.Join(err, host.AwaitStopped(ctx, pid))
	}
	if err != nil {
		return fmt.Errorf("gvisor: freeze %s: %w", id, err)
	}
	return nil
}

// Thaw continues the sentry.
func (d *Driver) Thaw(_ context.Context, id string) error {
	if _, err := d.signal(id, unix.SIGCONT); err != nil {
		return fmt.Errorf("gvisor: thaw %s: %w", id, err)
	}
	return nil
}

// Kill ends the processes of the sandbox. Its disk is an unlinked file, which is freed with
// them.
func (d *Driver) Kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	s, err := d.find(id)
	if err == nil {
		err = s.wall.kill(ctx)
	}
	if err != nil {
		return fmt.Errorf("gvisor: kill %s: %w", id, err)
	}
	return nil
}

func (d *Driver) signal(id string, sig unix.Signal) (pids []int, err error) {
	s, err := d.find(id)
	if err != nil {
		return nil, err
	}
	return s.wall.signal(sig)
}

func (g *group) signal(sig unix.Signal) (pids []int, err error) {
	pid, err := g.processes.Signal(g.id, g.search, sig)
	if pid == 0 {
		return nil, err
	}
	return []int{pid}, err
}

// signal signals the children of the warden: the sentry and the commands that control it. The
// warden itself continues to measure.
func (w *warden) signal(sig unix.Signal) (pids []int, err error) {
	pid, alive, err := w.find()
	if err != nil || !alive {
		return nil, err
	}
	return host.SignalChildren(pid, sig)
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

var _ sandbox.Freezer = (*Driver)(nil)

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
	base, err := host.Existing[instance](name, stateDir)
	if err != nil || base == nil {
		return nil, err
	}
	d := &Driver{base: base, opts: Options{StateDir: stateDir}, log: log, rootless: os.Geteuid() != 0}
	base.New = d.at
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
func (d *Driver) Freeze(ctx context.Context, id string) error { return d.base.Freeze(ctx, id) }

// Thaw continues the sentry, unless the sandbox is paused: then Resume does.
func (d *Driver) Thaw(_ context.Context, id string) error {
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	if paused, err := s.Paused(); err == nil && paused {
		return nil
	}
	return d.base.Thaw(id)
}

// Kill ends the processes of the sandbox. Its disk is an unlinked file, which is freed with
// them.
func (d *Driver) Kill(ctx context.Context, id string) error { return d.base.Kill(ctx, id) }

func (g *group) Signal(sig unix.Signal) (pids []int, err error) {
	pid, err := g.processes.Signal(g.id, g.search, sig)
	if pid == 0 {
		return nil, err
	}
	return []int{pid}, err
}

// Signal signals the children of the warden: the sentry and the commands that control it. The
// warden itself continues to measure.
func (w *warden) Signal(sig unix.Signal) (pids []int, err error) {
	pid, alive, err := w.find()
	if err != nil || !alive {
		return nil, err
	}
	return host.SignalChildren(pid, sig)
}

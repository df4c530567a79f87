package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

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
		return nil, fmt.Errorf("microvm: state directory: %w", err)
	}
	base, err := host.Existing[instance](name, stateDir)
	if err != nil || base == nil {
		return nil, err
	}
	d := &Driver{base: base, opts: Options{StateDir: stateDir}, log: log}
	base.New = d.at
	if d.cgroups, err = host.FindHierarchy(); err != nil {
		return nil, fmt.Errorf("microvm: %w", err)
	}
	return d, nil
}

// Freeze stops QEMU, which makes all of the machine's writes to its disk.
func (d *Driver) Freeze(ctx context.Context, id string) error { return d.base.Freeze(ctx, id) }

// Thaw continues QEMU, and the machine if QEMU stopped it for lack of space.
func (d *Driver) Thaw(ctx context.Context, id string) error {
	if err := d.base.Thaw(id); err != nil {
		return err
	}
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	alive, err := s.Alive()
	if err == nil && alive {
		err = s.unstop(ctx)
	}
	if err != nil {
		return fmt.Errorf("microvm: thaw %s: continue machine: %w", id, err)
	}
	return nil
}

// Kill ends QEMU and empties the file of its disk.
func (d *Driver) Kill(ctx context.Context, id string) error { return d.base.Kill(ctx, id) }

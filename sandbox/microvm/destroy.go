package microvm

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/berth-run/berth/sandbox/host"
)

// destroyTimeout bounds Destroy if ctx has no deadline.
const destroyTimeout = 30 * time.Second

// Destroy kills QEMU and removes the sandbox's cgroup, the key of its disk and its directory,
// in this order: while anything is left, List returns the sandbox. It needs neither intact
// files nor QEMU's cooperation.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	s, err := d.sandbox(id)
	if err != nil {
		return fmt.Errorf("microvm: destroy: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := s.cgroup.Kill(ctx); err != nil {
		return fmt.Errorf("microvm: destroy %s: %w", id, err)
	}
	if err := s.cgroup.Remove(ctx); err != nil {
		return fmt.Errorf("microvm: destroy %s: %w", id, err)
	}
	if err := host.Unseal(ctx, s.path(sealed)); err != nil {
		return fmt.Errorf("microvm: destroy %s: %w", id, err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("microvm: destroy %s: %w", id, err)
	}
	d.processes.Forget(id)
	return nil
}

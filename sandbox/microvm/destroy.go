package microvm

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/berth-run/berth/sandbox/host"
)

// destroyTimeout bounds Destroy where ctx does not.
const destroyTimeout = 30 * time.Second

// Destroy kills QEMU and removes the sandbox's cgroup, the key of what it wrote and its
// directory, in this order: as long as anything is left, List shows the sandbox. It
// needs no file of the sandbox's to be whole, and no cooperation of QEMU's.
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

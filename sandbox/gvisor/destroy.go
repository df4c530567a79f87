package gvisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/berth-run/berth/sandbox/host"
)

// destroyTimeout bounds Destroy if ctx has no deadline.
const destroyTimeout = 30 * time.Second

// Destroy kills the sandbox's processes and removes its cgroup and its mount, if it has them,
// and its directory, in this order: while anything is left, List returns the sandbox. It needs
// neither intact files nor runsc's cooperation.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	s, err := d.sandbox(id)
	if err != nil {
		return fmt.Errorf("gvisor: destroy: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := s.destroy(ctx); err != nil {
		return fmt.Errorf("gvisor: destroy %s: %w", id, err)
	}
	d.processes.Forget(id)
	return nil
}

func (s instance) destroy(ctx context.Context) error {
	if err := s.wall.kill(ctx); err != nil {
		return err
	}
	if err := s.wall.remove(ctx); err != nil {
		return err
	}
	// Without the key, the freed blocks cannot be decrypted.
	if err := host.Unseal(ctx, s.path(sealed)); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

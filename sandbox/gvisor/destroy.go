package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox/host"
)

// destroyTimeout bounds Destroy where ctx does not.
const destroyTimeout = 30 * time.Second

// Destroy kills the sandbox's processes and removes its cgroup, its mount and its
// directory, in this order: as long as anything is left, List shows the sandbox.
// It needs no file of the sandbox's to be whole, and no cooperation of runsc.
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
	return nil
}

func (s sandbox) destroy(ctx context.Context) error {
	if err := s.cgroup.Kill(ctx); err != nil {
		return err
	}
	// EINVAL: not a mount point, ENOENT: not even a directory.
	err := unix.Unmount(s.path("run"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting run: %w", err)
	}
	if err := s.cgroup.Remove(ctx); err != nil {
		return err
	}
	// Without the key, the blocks that this frees tell nothing.
	if err := host.Unseal(ctx, s.path(sealed)); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

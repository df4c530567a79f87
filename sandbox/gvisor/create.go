package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// Create prepares the directory, the small tmpfs and the cgroup. It takes about a millisecond;
// Start starts runsc.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) error {
	s, err := d.base.At(spec.ID)
	if err != nil {
		return fmt.Errorf("gvisor: create: %w", err)
	}
	if _, err := spec.Template.Directory(); err != nil {
		return fmt.Errorf("gvisor: create %s: %w", spec.ID, err)
	}
	if err := sandbox.CheckMounts(spec.Mounts); err != nil {
		return fmt.Errorf("gvisor: create %s: %w", spec.ID, err)
	}
	spec.Limits = spec.Limits.WithDefaults()
	image, err := d.image(spec)
	if err != nil {
		return fmt.Errorf("gvisor: create %s: %w", spec.ID, err)
	}

	err = d.base.Dir.Create(s.id, func(dir string) error { return d.fill(dir, s, spec, image) })
	if err != nil {
		return fmt.Errorf("gvisor: create: %w", err)
	}
	// From here on List returns the sandbox and Destroy removes all of it.
	if err := s.wall.raise(spec.Limits); err != nil {
		err = errors.Join(err, d.Destroy(context.WithoutCancel(ctx), s.id))
		return fmt.Errorf("gvisor: create %s: %w", s.id, err)
	}
	return nil
}

// fill creates the initial files of the sandbox's directory.
func (d *Driver) fill(dir string, s instance, spec sandbox.Spec, image string) error {
	for _, sub := range []string{"rootfs", "run", sealed, sealed + "/runsc", sealed + "/disk"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
		if sub == sealed && d.seals {
			if err := host.Seal(filepath.Join(dir, sub), host.NewSealKey()); err != nil {
				return err
			}
		}
	}
	if err := makeMountPoints(filepath.Join(dir, mountPoints), spec.Mounts); err != nil {
		return err
	}
	for name, content := range map[string]any{
		"sandbox.json": record{BootID: d.base.BootID, Rootfs: spec.Template.Path, Image: image,
			Limits: spec.Limits},
		sealed + "/config.json": d.ociSpec(spec, s, image),
	} {
		raw, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mountPoints is the directory of a sandbox that is overlaid on its template and contains the
// mount points of its mounts, if it has any.
const mountPoints = "mountpoints"

// makeMountPoints creates the mount points. Otherwise runsc's gofer would try to create them in
// the template.
func makeMountPoints(root string, mounts []sandbox.Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	dirs := []string{root, root + "/mnt", root + sandbox.MountRoot}
	for _, m := range mounts {
		dirs = append(dirs, filepath.Join(root, sandbox.MountRoot, m.Name))
	}
	for _, dir := range dirs {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { // independent of the umask
			return err
		}
	}
	return nil
}

// hostPIDs returns the limit of host processes and threads of a sandbox.
//
// gVisor limits processes in the sandbox to l.PIDs (RLIMIT_NPROC). Each address space in it is
// a host process with at most one thread for each CPU and one more; sentry, gofer and their
// threads are added. The host's limit must be above that sum, because a sentry that cannot fork
// panics. It only stops root in the sandbox from spreading its processes over many uids.
func hostPIDs(l sandbox.Limits) int {
	const own = 256
	return own + l.PIDs*(2+processors(l))
}

// processors returns the number of CPUs that the sandbox sees; berth-runsc computes the same.
func processors(l sandbox.Limits) int {
	return min(max(2, int(math.Ceil(l.CPU))), runtime.NumCPU())
}

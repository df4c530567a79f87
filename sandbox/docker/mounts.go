package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// Mounts of a sandbox are bound into StateDir/mounts/ID first, and from there into its
// container. So it is us who say that nothing in them is a device or runs as its owner;
// an engine forgets both where a mount is read-only. It works where the engine has this
// machine's files, under the same names, and sees what we mount.
//
// mountDir is the path of StateDir/mounts.
type mountDir string

// tryMounts returns what prevents mounts, in words; "" if nothing does. A directory with
// a new name, bound by us, is shown to the engine.
func (d *Driver) tryMounts(ctx context.Context) (prevents string, err error) {
	if d.remapped() {
		return "the engine's containers have users of their own", nil
	}
	source, err := os.MkdirTemp(d.opts.StateDir, "try-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	secret := rand.Text()
	if err := os.Mkdir(filepath.Join(source, secret), 0o700); err != nil {
		return "", err
	}
	const id = ".try" // no sandbox's
	if err := d.mounts.unbind(id); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.mounts.unbind(id)) }()
	bound, err := d.mounts.bind(id, []sandbox.Mount{{Name: "try", Path: source}})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	bound[0].Source = filepath.Join(bound[0].Source, secret)
	made, err := d.client.ContainerCreate(ctx, client.ContainerCreateOptions{HostConfig: &container.HostConfig{NetworkMode: "none", Mounts: bound},
		Config: &container.Config{Image: nothing, Cmd: []string{"none"}, Labels: map[string]string{labelInstance: d.instance}}})
	if err != nil {
		return "the engine does not see what is mounted here", nil
	}
	return "", d.remove(context.WithoutCancel(ctx), made.ID)
}

// bind makes a sandbox's mounts, and returns them as its container is to have them. On
// error nothing is left of them.
func (b mountDir) bind(id string, mounts []sandbox.Mount) (bound []mount.Mount, err error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	dir := filepath.Join(string(b), id)
	if err := errors.Join(os.MkdirAll(string(b), 0o700), os.Mkdir(dir, 0o700)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.unbind(id))
		}
	}()
	for _, m := range mounts {
		place := filepath.Join(dir, m.Name)
		if err := os.Mkdir(place, 0o700); err != nil {
			return nil, err
		}
		flags := uintptr(unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOATIME)
		if m.ReadOnly {
			flags |= unix.MS_RDONLY
		}
		err := unix.Mount(m.Path, place, "", unix.MS_BIND, "")
		if err == nil {
			err = unix.Mount("", place, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
		}
		if err != nil {
			return nil, &os.PathError{Op: "bind", Path: m.Path, Err: err}
		}
		bound = append(bound, mount.Mount{Type: mount.TypeBind, Source: place, Target: path.Join(sandbox.MountRoot, m.Name),
			BindOptions: &mount.BindOptions{NonRecursive: true}})
	}
	return bound, nil
}

// unbind undoes bind. It removes empty directories only: where something is still
// mounted it fails.
func (b mountDir) unbind(id string) error {
	dir := filepath.Join(string(b), id)
	places, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range places {
		place := filepath.Join(dir, p.Name())
		if err := unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return &os.PathError{Op: "unmount", Path: place, Err: err}
		}
		if err := os.Remove(place); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

// sweep undoes the mounts of all sandboxes but those with ids.
func (b mountDir) sweep(ids []string) error {
	entries, err := os.ReadDir(string(b))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(ids, e.Name()) {
			if err := b.unbind(e.Name()); err != nil {
				return fmt.Errorf("mounts of %s: %w", e.Name(), err)
			}
		}
	}
	return nil
}

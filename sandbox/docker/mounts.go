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
// container. So this driver sets nodev and nosuid; an engine drops both if a mount is
// read-only. It works if the engine has this machine's files, under the same names, and sees
// its mounts.
//
// mountDir is the path of StateDir/mounts.
type mountDir string

// tryMounts returns why mounts do not work, or "" if they do. It shows a newly bound directory
// to the engine.
func (d *Driver) tryMounts(ctx context.Context) (prevents string, err error) {
	if d.remapped() {
		return "the engine's containers are in a user namespace", nil
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
	const id = ".try" // not the id of a sandbox
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
	made, err := d.client.ContainerCreate(ctx,
		client.ContainerCreateOptions{HostConfig: &container.HostConfig{NetworkMode: "none", Mounts: bound},
			Config: &container.Config{Image: nothing, Cmd: []string{"none"},
				Labels: map[string]string{labelInstance: d.instance}}})
	if err != nil {
		return "the engine does not see mounts of this machine", nil
	}
	return "", d.remove(context.WithoutCancel(ctx), made.ID)
}

// bind mounts a sandbox's volumes, and returns them as mounts of its container. After an error
// none of them is left.
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
		bound = append(bound, mount.Mount{Type: mount.TypeBind, Source: place, Target: path.Join(sandbox.MountRoot,
			m.Name),
			BindOptions: &mount.BindOptions{NonRecursive: true}})
	}
	return bound, nil
}

// unbind undoes bind. It removes empty directories only: if something is still mounted, it
// fails.
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
		if err := unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
			!errors.Is(err, unix.EINVAL) {
			return &os.PathError{Op: "unmount", Path: place, Err: err}
		}
		if err := os.Remove(place); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

// sweep undoes the mounts of all sandboxes except ids.
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

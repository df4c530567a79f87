package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/sandbox/host"
)

// contentDir is the directory of a volume's file system that sandboxes see.
const contentDir = "content"

// user is the uid and gid of the user that commands run as.
const user = 1000

// An image is a file system in a file of its own. Its size is the volume's limit, so that a
// full volume does not affect others. Its content is encrypted if the kernel supports it.
type image struct {
	path  string // of the file
	dir   string // where it is mounted
	plain bool   // no file: dir holds the content
}

// create creates the file and the file system in it.
func (i image) create(ctx context.Context, size int64, key host.SealKey) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, i.remove(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		return err
	}
	if i.plain {
		return os.Mkdir(filepath.Join(i.dir, contentDir), 0o755)
	}
	f, err := os.OpenFile(i.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	mkfs := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-m", "0", "-O", "encrypt", "-E",
		"lazy_itable_init=1,root_owner=0:0", i.path)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %.500s", err, out)
	}
	if err := i.mount(); err != nil {
		return err
	}
	content := filepath.Join(i.dir, contentDir)
	if err := os.Mkdir(content, 0o755); err != nil {
		return err
	}
	if err := host.Seal(content, key); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err := os.Chown(content, user, user); err != nil {
		return err
	}
	d, err := os.Open(i.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}

// open mounts the file system, unless it is mounted, and returns its content.
func (i image) open(key host.SealKey) (content string, err error) {
	content = filepath.Join(i.dir, contentDir)
	mounted, err := i.mounted()
	if err != nil || mounted || i.plain {
		return content, err
	}
	if err := i.mount(); err != nil {
		return "", err
	}
	if _, err := host.AddSealKey(i.dir, key); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return "", errors.Join(err, unix.Unmount(i.dir, unix.MNT_DETACH))
	}
	return content, nil
}

// mounted reports whether dir is a mount point.
func (i image) mounted() (bool, error) {
	var own, above unix.Stat_t
	if err := unix.Stat(i.dir, &own); errors.Is(err, unix.ENOENT) {
		return false, nil // after a restore
	} else if err != nil {
		return false, &os.PathError{Op: "stat", Path: i.dir, Err: err}
	}
	if err := unix.Stat(filepath.Dir(i.dir), &above); err != nil {
		return false, &os.PathError{Op: "stat", Path: filepath.Dir(i.dir), Err: err}
	}
	return own.Dev != above.Dev, nil
}

// fiThaw is FITHAW of linux/fs.h.
const fiThaw = 0xC0045878

// thaw ends the freeze of a mounted file system that a killed backup has left: all writes to it
// wait. A backup that is in progress notices, and fails.
func (i image) thaw() error {
	if mounted, err := i.mounted(); err != nil || !mounted {
		return err
	}
	d, err := os.Open(i.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// EINVAL: not frozen
	if err := unix.IoctlSetInt(int(d.Fd()), fiThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return &os.PathError{Op: "thaw", Path: i.dir, Err: err}
	}
	return nil
}

// loopAttempts is how often mount requests another loop device after another process took the
// free one first.
const loopAttempts = 20

// mount mounts the file on a loop device, which is detached with the mount.
func (i image) mount() error {
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		return err
	}
	file, err := statefile.OpenFile(i.path, os.O_RDWR|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer file.Close()
	if loop, err := attached(file); err != nil || loop != nil {
		if err != nil {
			return err
		}
		defer loop.Close()
		return i.mountDevice(loop.Name())
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	for n := 0; ; n++ {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("attach loop device: %w", err)
		}
		err = i.mountOn(fmt.Sprintf("/dev/loop%d", number), number, file)
		if !errors.Is(err, unix.EBUSY) || n == loopAttempts {
			return err
		}
	}
}

func (i image) mountOn(device string, number int, file *os.File) error {
	loop, err := openLoop(device, number)
	if err != nil {
		return err
	}
	defer loop.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
		return &os.PathError{Op: "configure", Path: device, Err: err}
	}
	return i.mountDevice(device)
}

// mountDevice mounts the file system on a loop device.
func (i image) mountDevice(device string) error {
	// Sandboxes may create any file in the volume: device nodes and setuid bits have no effect.
	// Programs may run, so noexec is not set.
	flags := uintptr(unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOATIME)
	if err := unix.Mount(device, i.dir, "ext4", flags, "discard,errors=remount-ro"); err != nil {
		return &os.PathError{Op: "mount", Path: i.path, Err: err}
	}
	return nil
}

// openLoop opens a loop device. It creates the node if the system does not.
func openLoop(device string, number int) (*os.File, error) {
	loop, err := os.OpenFile(device, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		const major = 7
		if err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(major, uint32(number)))); err != nil &&
			!errors.Is(err, unix.EEXIST) {
			return nil, &os.PathError{Op: "mknod", Path: device, Err: err}
		}
		loop, err = os.OpenFile(device, os.O_RDWR, 0)
	}
	return loop, err
}

// used returns the used bytes of a mounted file system.
func (i image) used() (int64, error) {
	if i.plain {
		return 0, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(i.dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: i.dir, Err: err}
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil
}

// remove removes the key from the kernel, unmounts the file system and removes the file. It
// also completes a removal that a crash interrupted.
func (i image) remove(ctx context.Context) error {
	if i.plain {
		return os.RemoveAll(i.dir)
	}
	mounted, err := i.mounted()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if mounted {
		if err := host.Unseal(ctx, filepath.Join(i.dir, contentDir)); err != nil {
			return err
		}
		if err := unix.Unmount(i.dir, unix.UMOUNT_NOFOLLOW); err != nil {
			return &os.PathError{Op: "unmount", Path: i.dir, Err: err}
		}
	}
	if err := os.Remove(i.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(i.dir) // a copied state directory holds the files that were mounted in the original
}

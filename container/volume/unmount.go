package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
)

// IdleTime is how long an unused volume stays mounted, because the next use is faster then.
const IdleTime = time.Minute

// Unmount unmounts the volumes that no container and no call of Visit holds and that were not used for the duration
// idle. Before that, containers of a former process must hold their volumes.
func (l *Service) Unmount(idle time.Duration) error {
	if l.opts.Plain {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	dirs, err := filepath.Glob(filepath.Join(l.opts.Dir, "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		id := berth.VolumeID(filepath.Base(dir))
		if strings.HasSuffix(dir, imageSuffix) || len(l.users[id]) > 0 || len(l.visits[id]) > 0 ||
			l.opts.Clock.Since(l.used[id]) < idle {
			continue
		}
		i := image{path: dir + imageSuffix, dir: dir}
		if uerr := i.unmount(); uerr != nil {
			err = errors.Join(err, fmt.Errorf("unmount volume %s: %w", id, uerr))
			continue
		}
		delete(l.used, id)
	}
	return err
}

// Close unmounts the volumes that no container holds. Volumes of running containers stay
// mounted.
func (l *Service) Close() error { return l.Unmount(0) }

// unmount unmounts the file system, if it is mounted. Its loop device goes with it.
func (i image) unmount() error {
	mounted, err := i.mounted()
	if err != nil || !mounted {
		return err
	}
	if err := unix.Unmount(i.dir, unix.UMOUNT_NOFOLLOW); err != nil {
		return &os.PathError{Op: "unmount", Path: i.dir, Err: err}
	}
	return nil
}

// attached returns the open loop device that the file is attached to, or nil. There is one if a
// sandbox still has the file system mounted in its own namespace. To attach the file a second
// time would create two file systems on it, which destroy each other.
func attached(file *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var number int
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		if _, err := fmt.Sscanf(name, "loop%d", &number); err != nil {
			continue
		}
		loop, err := openLoop("/dev/"+name, number)
		if err != nil {
			continue // it has been detached
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		if err == nil && info.Device == st.Dev && info.Inode == st.Ino {
			return loop, nil
		}
		loop.Close()
	}
	return nil, nil
}

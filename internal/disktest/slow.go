package disktest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Requests of ioctl for a mounted file system, linux/fs.h.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// throttleHierarchy is where control groups of version 1 limit block devices.
const throttleHierarchy = "/sys/fs/cgroup/blkio"

// Slow limits what a process writes to the volume of dir to a number of bytes a second, until
// the returned function is called or the test ends. Processes that it starts in that time are
// limited as well. It skips the test where control groups cannot do that.
func Slow(tb testing.TB, dir string, pid, bytesPerSecond int) (end func()) {
	tb.Helper()
	if _, err := os.Stat(filepath.Join(throttleHierarchy, "cgroup.procs")); err != nil {
		tb.Skipf("skipped: no control groups of version 1 for block devices: %v", err)
	}
	group, err := os.MkdirTemp(throttleHierarchy, "berth-slow-")
	if err != nil {
		tb.Skipf("skipped: no control group for block devices: %v", err)
	}
	move := func(group string, pids []byte) error {
		return os.WriteFile(filepath.Join(group, "cgroup.procs"), pids, 0)
	}
	ended := false
	end = func() {
		tb.Helper()
		if ended {
			return
		}
		ended = true
		procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for pid := range bytes.Lines(procs) {
			if e := move(throttleHierarchy, pid); !errors.Is(e, unix.ESRCH) {
				err = errors.Join(err, e)
			}
		}
		if err := errors.Join(err, os.Remove(group)); err != nil {
			tb.Errorf("end the limit: %v", err)
		}
	}
	tb.Cleanup(end)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		tb.Fatal(err)
	}
	limit := fmt.Sprintf("%d:%d %d", unix.Major(st.Dev), unix.Minor(st.Dev), bytesPerSecond)
	if err := os.WriteFile(filepath.Join(group, "blkio.throttle.write_bps_device"), []byte(limit), 0); err != nil {
		tb.Skipf("skipped: the kernel does not limit writes to block devices: %v", err)
	}
	if err := move(group, strconv.AppendInt(nil, int64(pid), 10)); err != nil {
		tb.Fatal(err)
	}
	return end
}

// Stall makes all writes to the volume of dir wait, as those to a disk that does not answer,
// until the returned function is called or the test ends.
func Stall(tb testing.TB, dir string) (end func()) {
	tb.Helper()
	root, err := os.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(root.Fd()), fiFreeze, 0); err != nil {
		root.Close()
		tb.Skipf("skipped: the file system cannot be frozen: %v", err)
	}
	ended := false
	end = func() {
		tb.Helper()
		if ended {
			return
		}
		ended = true
		if err := errors.Join(unix.IoctlSetInt(int(root.Fd()), fiThaw, 0), root.Close()); err != nil {
			tb.Errorf("thaw the file system: %v", err)
		}
	}
	tb.Cleanup(end)
	return end
}

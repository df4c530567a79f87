// Package disktest creates small volumes for tests that fill them, slow them down or stall them.
package disktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Ext4 returns a directory on a new ext4 volume of the given size, which is unmounted when the
// test ends. It skips the test without root.
func Ext4(tb testing.TB, bytes int64, mkfs ...string) string {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("skipped: mounting a volume needs root")
	}
	dir := tb.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "volume")
	if err := os.Mkdir(at, 0o755); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Create(image)
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.Truncate(bytes); err != nil {
		tb.Fatal(err)
	}
	f.Close()
	run(tb, "mkfs.ext4", append(append([]string{"-q", "-m", "0", "-E", "lazy_itable_init=1"}, mkfs...), image)...)
	run(tb, "mount", "-o", "loop", image, at)
	tb.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			tb.Errorf("unmount %s: %v; open: %v", at, err, openBelow(at))
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	})
	return at
}

func run(tb testing.TB, name string, args ...string) {
	tb.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		tb.Skipf("skipped: %s: %v: %s", name, err, out)
	}
}

// Fill writes a file until the volume of dir has less than leave bytes free, and returns the
// file's path.
func Fill(tb testing.TB, dir string, leave int64) string {
	tb.Helper()
	f, err := os.CreateTemp(dir, "filler-")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for size := int64(0); ; {
		free := Free(tb, dir)
		if free <= leave {
			return f.Name()
		}
		// The last blocks may be needed for the file's extents.
		more := max((free-leave)/2, 4096)
		if err := unix.Fallocate(int(f.Fd()), 0, size, more); err != nil {
			return f.Name()
		}
		size += more
	}
}

// Free returns how many more bytes can be written to the volume of dir.
func Free(tb testing.TB, dir string) int64 {
	tb.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		tb.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// openBelow returns the files below dir that this process has open.
func openBelow(dir string) (paths []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if path, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(path, dir) {
			paths = append(paths, path)
		}
	}
	return paths
}

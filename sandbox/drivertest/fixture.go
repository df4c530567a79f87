package drivertest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// packages are the packages of the suite's template beside the essential ones.
var packages = []string{"bash", "ca-certificates", "coreutils", "curl", "procps", "python3-minimal", "sudo"}

// hooks create the user of commands, and remove files that the build copied from the host.
var hooks = []string{
	`chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash user`,
	`echo 'user ALL=(ALL) NOPASSWD:ALL' >"$1/etc/sudoers.d/user"`,
	`chmod 440 "$1/etc/sudoers.d/user"`,
	`rm -f "$1/etc/resolv.conf" "$1/etc/hostname"`,
}

// Rootfs returns a small Debian root file system, which is built once and cached for the user.
// It skips the test if it cannot be built.
func Rootfs(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(rootfsEnv); path != "" {
		return path
	}
	if os.Geteuid() != 0 {
		tb.Skip("skipped: only root can build a root file system")
	}
	key := sha256.Sum256([]byte(strings.Join(append(packages, hooks...), "\n")))
	return Cached(tb, "rootfs-"+hex.EncodeToString(key[:6]), func(tmp string) error {
		if _, err := exec.LookPath("mmdebstrap"); err != nil {
			tb.Skip("skipped: mmdebstrap, which builds the root file system, is not installed")
		}
		args := []string{"--quiet", "--variant=minbase", "--include=" + strings.Join(packages, ",")}
		for _, h := range hooks {
			args = append(args, "--customize-hook="+h)
		}
		return run(tb, ".", "mmdebstrap", append(args, "bookworm", tmp)...)
	})
}

// Template returns Rootfs as a template.
func Template(tb testing.TB) sandbox.Template {
	tb.Helper()
	return sandbox.Template{Ref: "drivertest", Path: Rootfs(tb)}
}

// ImageDir returns the cached directory of images of templates.
func ImageDir(tb testing.TB) string { return filepath.Join(cacheDir(tb), "erofs") }

// Guest returns the path of berth-guest, from BERTH_GUEST or built.
func Guest(tb testing.TB) string { return program(tb, "berth-guest", "BERTH_GUEST", ".") }

// Runsc returns the path of berth-runsc, from BERTH_RUNSC or built. The first
// build takes a minute.
func Runsc(tb testing.TB) string {
	// It is in a module of its own.
	return program(tb, "berth-runsc", "BERTH_RUNSC", "cmd/berth-runsc")
}

// program builds cmd/name in the module at dir below the repository's root, unless the
// environment names a built one. The go command's cache makes it fast.
func program(tb testing.TB, name, env, dir string) string {
	tb.Helper()
	if path := os.Getenv(env); path != "" {
		return path
	}
	built.Lock()
	defer built.Unlock()
	if path := built.paths[name]; path != "" {
		return path
	}
	root, err := repository()
	if err != nil {
		tb.Fatal(err)
	}
	cache := cacheDir(tb)
	defer lock(tb, filepath.Join(cache, name+".lock"))()
	out := filepath.Join(cache, name)
	pkg := "./cmd/" + name
	if dir != "." {
		pkg = "."
	}
	if err := run(tb, filepath.Join(root, dir), "go", "build", "-trimpath", "-ldflags=-s -w -R 0x200000", "-o", out,
		pkg); err != nil {
		tb.Fatal(err)
	}
	built.paths[name] = out
	return out
}

// built holds the programs that this process has built or found up to date.
var built = struct {
	sync.Mutex
	paths map[string]string
}{paths: make(map[string]string)}

// repository returns the directory of the main module.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the test")
}

// Cached returns a directory of the cache that make filled, now or earlier. Tests of several
// packages may call it at the same time.
func Cached(tb testing.TB, name string, make func(tmp string) error) string {
	tb.Helper()
	cache := cacheDir(tb)
	defer lock(tb, filepath.Join(cache, name+".lock"))()
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	} else if !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	tmp := dir + ".tmp"
	for _, step := range []func() error{
		func() error { return os.RemoveAll(tmp) },
		func() error { return make(tmp) },
		func() error { return os.Rename(tmp, dir) },
	} {
		if err := step(); err != nil {
			tb.Fatalf("build %s: %v", name, err)
		}
	}
	return dir
}

// cacheDir returns the directory of cached fixtures.
func cacheDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	dir = filepath.Join(dir, "berth-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// StateDir returns an empty directory for a driver's state, which is removed after the test. It
// is beside the fixtures and not in the system's directory for temporary files, because that
// may be in memory.
func StateDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(cacheDir(tb), "state-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// lock acquires a lock between processes and returns its release.
func lock(tb testing.TB, path string) (release func()) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		tb.Fatal(err)
	}
	return func() { f.Close() }
}

// run runs a program. Its error includes the output.
func run(tb testing.TB, dir, name string, args ...string) error {
	tb.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.New(name + ": " + err.Error() + "\n" + string(out))
	}
	return nil
}

package drivertest

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/layer"
)

// OtherUser is the uid and gid of a user that this machine does not otherwise use.
const OtherUser = 54321

// rootfsEnv names the root file system, for a test program that cannot build one.
const rootfsEnv = "BERTH_TEST_ROOTFS"

// AsUser runs tests of the test program again as another user than root, with programs and a
// root file system of that user. The caller must be root.
func AsUser(t *testing.T, tests string) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can become another user")
	}
	home, env := UserHome(t)
	if longtest.Enabled() { // the other user cannot build it
		quic := filepath.Join(home, "quic")
		userCopy(t, quicProgram(t), quic)
		env = append(env, quicEnv+"="+quic)
	}
	program := filepath.Join(home, filepath.Base(os.Args[0]))
	userCopy(t, os.Args[0], program)
	args := []string{"-test.run=" + tests, "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), env...) // the last of equal names counts
	cmd.SysProcAttr = UserCredential()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as user %d: %v", OtherUser, err)
	}
	if !strings.Contains(string(out), "--- PASS") {
		t.Errorf("as user %d: no test ran", OtherUser)
	}
}

// UserCredential makes a process run as OtherUser.
func UserCredential() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: OtherUser, Gid: OtherUser}}
}

// UserHome creates a home for OtherUser and returns it with an environment for programs that
// run there. It is removed after the test.
func UserHome(t *testing.T) (home string, env []string) {
	t.Helper()
	home, err := os.MkdirTemp("/var/tmp", "berth-user-") // accessible to other users, and not a tmpfs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(home, OtherUser, OtherUser); err != nil {
		t.Fatal(err)
	}
	env = []string{"HOME=" + home, "TMPDIR=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, "cache"),
		"PATH=" + os.Getenv("PATH")}
	for name, path := range map[string]string{"BERTH_GUEST": Guest(t), "BERTH_RUNSC": Runsc(t)} {
		to := filepath.Join(home, filepath.Base(path))
		userCopy(t, path, to)
		env = append(env, name+"="+to)
	}
	return home, append(env, rootfsEnv+"="+userRootfs(t, home))
}

// userCopy copies a program for OtherUser.
func userCopy(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.WriteFile(to, raw, 0o755), os.Chown(to, OtherUser, OtherUser))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// userRootfs returns Rootfs as if OtherUser had unpacked it, in a directory.
func userRootfs(t *testing.T, home string) string {
	t.Helper()
	from := Rootfs(t)
	kept := Cached(t, filepath.Base(from)+"-user", func(tmp string) error { return unpackAsUser(from, tmp) })
	to := filepath.Join(home, "rootfs")
	if run(t, "/", "cp", "-al", kept, to) != nil { // another file system
		if err := run(t, "/", "cp", "-a", kept, to); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func unpackAsUser(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	root, err := beneath.Open(to)
	if err != nil {
		return err
	}
	defer root.Close()
	diff, w := io.Pipe()
	go func() {
		out := tar.NewWriter(w)
		err := (&layer.Differ{Root: from}).Diff(out)
		w.CloseWithError(errors.Join(err, out.Close()))
	}()
	whole, made := io.Pipe()
	go func() {
		_, err := layer.Make(made, diff, "", layer.Limits{})
		diff.CloseWithError(err)
		made.CloseWithError(err)
	}()
	if err := (&layer.Applier{Root: root, Notes: true}).Apply(whole); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, OtherUser, OtherUser))
	})
}

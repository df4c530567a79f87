package image

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/layer"
)

// small is a recipe without owners of links or capabilities of files, which an ordinary user's
// templates lack.
var small = Recipe{
	Name:     "small",
	Packages: []string{"sudo"},
	Files:    []File{{Path: "/etc/berth/it's here", Mode: 0o640, Content: "$HOME\n"}},
	Run: []string{`rm -f /usr/local/man`,
		`test "$(cat "/etc/berth/it's here")" = '$HOME' && echo 'ran' >/etc/ran`},
}

// builderEnv names the directory in which the test program, run as an ordinary user, builds.
const builderEnv = "BERTH_TEST_BUILDER"

// An ordinary user with subordinate ids builds the same template as root. A build without them says
// what to do, and an interrupted one leaves nothing.
func TestBuildAsUser(t *testing.T) {
	if dir := os.Getenv(builderEnv); dir != "" {
		buildAsUser(t, dir)
		return
	}
	needRoot(t)
	longtest.Skip(t)
	for _, program := range []string{"mmdebstrap", "newuidmap", "useradd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	if !inOwnMounts(t) {
		return
	}
	// The user exists in this mount namespace only.
	upper := t.TempDir()
	if err := syscall.Mount("users", upper, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the directory can be removed then
		if err := errors.Join(unix.Unmount("/etc", unix.MNT_DETACH), unix.Unmount(upper, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(upper, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("etc", "/etc", "overlay", 0,
		"lowerdir=/etc,upperdir="+upper+"/upper,workdir="+upper+"/work"); err != nil {
		t.Skipf("skipped: no overlay file system for /etc: %v", err)
	}
	home, err := os.MkdirTemp("/var/tmp", "berth-builder-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	const uid = 54322
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run("useradd", "--uid", "54322", "--home-dir", home, "berth-builder")
	raw, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(home, "test")
	if err := os.WriteFile(program, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(home, uid, uid), os.Chmod(home, 0o700)); err != nil {
		t.Fatal(err)
	}
	as := func(work string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestBuildAsUser$", "-test.v", "-test.timeout=0")
		cmd.Dir = home
		cmd.Env = append(os.Environ(), builderEnv+"="+work, "HOME="+home, "TMPDIR="+home)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid},
			Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", work, err, out)
		}
		return string(out)
	}
	before := leftovers(t)
	out := as("build")
	want, err := open(t, t.TempDir()).Build(t.Context(), small, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, want.Digest) {
		t.Errorf("as a user: got another template than root's, %s\n%s", want.Digest, out)
	}
	if after := leftovers(t); after != before {
		t.Errorf("builds left files: got %s, before %s", after, before)
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	as("refuse")
}

// leftovers returns what builds of ordinary users have left in /var/tmp.
func leftovers(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/var/tmp/mmdebstrap.*")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

// buildAsUser does what the parent asks for as an ordinary user.
func buildAsUser(t *testing.T, work string) {
	l, err := Open(filepath.Join(os.Getenv("HOME"), "library"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if work == "refuse" {
		_, err := l.Build(t.Context(), small, nil)
		if err == nil || !strings.Contains(err.Error(),
			"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 berth-builder") {
			t.Errorf("without subordinate ids: got %v", err)
		}
		return
	}
	seen := map[Phase]Progress{}
	made, err := l.Build(t.Context(), small, func(p Progress) { seen[p.Phase] = p })
	if err != nil {
		t.Fatal(err)
	}
	t.Log(made.Digest)
	if unpacked := seen[Unpack]; unpacked.Done == 0 || seen[Configure].Done == 0 || seen[Finish].Elapsed == 0 {
		t.Errorf("progress was last %+v", seen)
	}
	owners, err := layer.OwnersOf(made.Rootfs)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]unix.Stat_t{
		"etc/berth/it's here": {Mode: unix.S_IFREG | 0o640}, "usr/bin/sudo": {Mode: unix.S_IFREG | 0o4755},
		"mnt/data": {Uid: 1000, Gid: 1000, Mode: unix.S_IFDIR | 0o755}, "etc/shadow": {Gid: 42,
			Mode: unix.S_IFREG | 0o640},
	} {
		got, err := owners.Lstat(filepath.Join(made.Rootfs, path))
		if err != nil || got.Uid != want.Uid || got.Gid != want.Gid || got.Mode != want.Mode {
			t.Errorf("%s: got %d:%d %o, %v, want %d:%d %o", path, got.Uid, got.Gid, got.Mode, err, want.Uid, want.Gid,
				want.Mode)
		}
	}

	// The second build uses the packages of the first, and is interrupted.
	if _, err := os.Stat(filepath.Join(l.dir, "cache", hostSuite(), cachedDebs)); err != nil {
		t.Errorf("no packages are cached: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	_, err = l.Build(ctx, small, func(p Progress) {
		if p.Phase == Download && strings.HasPrefix(p.Step, "downloading") {
			t.Errorf("the second build is %s", p.Step)
		}
		if p.Phase == Configure {
			cancel(enough)
		}
	})
	if !errors.Is(err, enough) {
		t.Errorf("interrupted: got %v, want %v", err, enough)
	}
	if left := entries(t, l, "building-*"); len(left) != 0 {
		t.Errorf("the interrupted build left %v", left)
	}
}

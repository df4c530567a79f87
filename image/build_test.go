package image

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var tiny = Recipe{
	Name:     "tiny",
	Packages: []string{"sudo", "python3-minimal"},
	Exclude:  []string{"/usr/libexec/*/group_file.so"},
	Files:    []File{{Path: "/etc/berth/it's here", Mode: 0o640, Content: "$HOME\n"}},
	Run:      []string{`test "$(cat "/etc/berth/it's here")" = '$HOME' && echo 'ran' >/etc/ran`},
}

// hostLists is where apt has this machine's package lists.
const hostLists = "/var/lib/apt/lists"

// inOwnMounts reports whether the test runs in a mount namespace of its own, with a
// marker for this machine's package lists, and a lock on them as another user of apt has
// it. Otherwise it runs the test once more, in one.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	const variable = "BERTH_TEST_OWN_MOUNTS"
	if os.Getenv(variable) != t.Name() {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=0")
		cmd.Env = append(os.Environ(), variable+"="+t.Name())
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Error(err)
		}
		return false
	}
	if err := os.MkdirAll(hostLists, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("lists", hostLists, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hostLists+"/marker", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(hostLists + "/lock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.FcntlFlock(lock.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	return true
}

// hostListsAreWhole fails the test if the lists have changed.
func hostListsAreWhole(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(hostLists)
	if err != nil || len(left) != 2 || left[0].Name() != "lock" || left[1].Name() != "marker" {
		t.Errorf("this machine's package lists hold %v, %v; want what was there", left, err)
	}
}

// A build cannot change the state of this machine's apt.
func TestBuildCannotWriteHostLists(t *testing.T) {
	needRoot(t)
	if !inOwnMounts(t) {
		return
	}
	tool := filepath.Join(t.TempDir(), "tool")
	script := "#!/bin/sh\n" +
		`rm -rf /var/lib/apt/lists/*; touch /var/cache/apt/new && exit 3; touch /var/lib/dpkg/new && exit 4; echo finished`
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	dir := t.TempDir()
	b := &build{recipe: Recipe{Suite: "bookworm"}, tool: tool, dir: dir, cache: filepath.Join(dir, "cache"), lock: lock,
		meter: newMeter(nil)}
	if err := os.MkdirAll(filepath.Join(b.template(), "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.run(t.Context()); err != nil || !strings.Contains(b.meter.output(), "finished") {
		t.Errorf("got %v\n%s", err, b.meter.output())
	}
	hostListsAreWhole(t)
}

// TestDebian builds a real template, twice.
func TestDebian(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Skip("skipped: mmdebstrap is not installed")
	}
	if !inOwnMounts(t) {
		return
	}
	defer hostListsAreWhole(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	// The package cache survives for the next run.
	l := open(t, filepath.Join(cache, "berth-test", "image"))
	t.Cleanup(func() { _ = l.Remove("tiny", nil) }) // gone already unless the test failed

	seen := map[Phase]Progress{}
	first, err := l.Build(t.Context(), tiny, func(p Progress) { seen[p.Phase] = p })
	if err != nil {
		t.Fatal(err)
	}
	if unpacked := seen[Unpack]; unpacked.Done == 0 || unpacked.Done > unpacked.Total || seen[Configure].Done == 0 ||
		seen[Finish].Elapsed == 0 {
		t.Errorf("progress was last %+v", seen)
	}
	if len(first.Packages) < 60 || first.Bytes < 50<<20 {
		t.Errorf("the template has %d packages and %d bytes", len(first.Packages), first.Bytes)
	}
	checkContent(t, first.Rootfs)
	elsewhere := open(t, t.TempDir())
	from, to := io.Pipe()
	go func() { to.CloseWithError(l.Save(t.Context(), "tiny", to, nil)) }()
	loaded, err := elsewhere.Load(t.Context(), from, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Name != "tiny" || loaded.Digest != first.Digest {
		t.Errorf("saved and loaded: got %s, %s, want %s", loaded.Name, loaded.Digest, first.Digest)
	}
	if err := l.Remove("tiny", nil); err != nil {
		t.Fatal(err)
	}

	second, err := l.Build(t.Context(), tiny, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := second.Digest, first.Digest; got != want {
		t.Errorf("the second build has the digest %s, want %s", got, want)
	}
}

// checkContent checks the files that every template must have.
func checkContent(t *testing.T, root string) {
	t.Helper()
	for path, want := range map[string]string{
		"etc/hostname":         "sandbox\n",
		"etc/resolv.conf":      "",
		"etc/machine-id":       "",
		"etc/ran":              "ran\n",
		"etc/berth/it's here":  "$HOME\n",
		"etc/apt/sources.list": publicSources(hostSuite()),
	} {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]struct {
		mode fs.FileMode
		uid  uint32
	}{
		"home/user":           {fs.ModeDir | 0o755, 1000},
		"mnt/data":            {fs.ModeDir | 0o755, 1000},
		"usr/share/man/man1":  {fs.ModeDir | 0o755, 0},
		"usr/local/bin":       {fs.ModeDir | 0o755, 1000},
		"etc/sudoers.d/user":  {0o440, 0},
		"etc/berth/it's here": {0o640, 0},
		"tmp":                 {fs.ModeDir | fs.ModeSticky | 0o777, 0},
	} {
		info, err := os.Lstat(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
		} else if uid := info.Sys().(*syscall.Stat_t).Uid; info.Mode() != want.mode || uid != want.uid {
			t.Errorf("%s is %v of %d, want %v of %d", path, info.Mode(), uid, want.mode, want.uid)
		}
	}
	// Python's modules are compiled and validated by the time of the source: flags are 0 (PEP 552).
	compiled, _ := filepath.Glob(filepath.Join(root, "usr/lib/python3.*/__pycache__/os.*.pyc"))
	if len(compiled) != 1 {
		t.Fatalf("os is compiled as %v", compiled)
	}
	if head, err := os.ReadFile(compiled[0]); err != nil || len(head) < 8 || string(head[4:8]) != "\x00\x00\x00\x00" {
		t.Errorf("%s starts with %x, %v", compiled[0], head[:min(8, len(head))], err)
	}
	for _, none := range []string{"usr/share/man/*/*", "usr/share/locale/*/*", "var/log/*.log",
		"var/cache/apt/archives/*.deb", "tmp/*", "root/.cache", "usr/libexec/sudo/group_file.so"} {
		if found, _ := filepath.Glob(filepath.Join(root, none)); len(found) != 0 {
			t.Errorf("the template has %v", found)
		}
	}
}

// mmdebstrap rejects an empty --include.
func TestNoPackages(t *testing.T) {
	for _, arg := range (&build{recipe: Recipe{Name: "bare"}}).args() {
		if strings.HasPrefix(arg, "--include") {
			t.Errorf("without packages: got the argument %q", arg)
		}
	}
}

// An interrupted build leaves neither files nor processes.
func TestInterrupted(t *testing.T) {
	needRoot(t)
	// A child in its own session, which a signal to the group does not reach.
	fakeTool(t, `setsid sleep 1000 & echo 'Unpacking jq (1.6) ...'; wait`)
	l := open(t, t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	_, err := l.Build(ctx, tiny, func(Progress) { cancel(enough) })
	if !errors.Is(err, enough) {
		t.Errorf("Build: %v, want %v", err, enough)
	}
	if left := append(entries(t, l, "building-*"), entries(t, l, "templates/*")...); len(left) != 0 {
		t.Errorf("the build left %v", left)
	}
	// Every process of the build holds the lock.
	lock, err := l.openLock(buildLock)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := flock(lock); err != nil {
		t.Errorf("a process of the build lives: %v", err)
	}
}

func TestFailed(t *testing.T) {
	needRoot(t)
	fakeTool(t, `echo 'E: no such package: jqq'; exit 3`)
	l := open(t, t.TempDir())
	_, err := l.Build(t.Context(), tiny, nil)
	if err == nil || !strings.Contains(err.Error(), "no such package: jqq") {
		t.Errorf("Build: %v, want mmdebstrap's output", err)
	}
	if left := append(entries(t, l, "building-*"), entries(t, l, "templates/*")...); len(left) != 0 {
		t.Errorf("the build left %v", left)
	}
}

// Builds run one at a time.
func TestBuildsWait(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	fakeTool(t, `echo 'Unpacking jq (1.6) ...'; cat `+quote(gate))
	first := make(chan error, 1)
	began := make(chan struct{}, 1)
	l := open(t, filepath.Join(dir, "library"))
	go func() {
		_, err := l.Build(t.Context(), tiny, func(p Progress) {
			if p.Phase == Unpack {
				began <- struct{}{}
			}
		})
		first <- err
	}()
	select {
	case <-began:
	case err := <-first:
		t.Fatalf("the first build ended: %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := open(t, l.dir).Build(ctx, tiny, func(p Progress) { t.Errorf("the second build started: %+v", p) })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second build: %v, want a timeout", err)
	}
	if err := os.WriteFile(gate, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// The recipe's commands inherit only the proxies from this process's environment.
func TestEnvironment(t *testing.T) {
	needRoot(t)
	fakeTool(t, `env >"$root/env"`)
	t.Setenv("OPENAI_API_KEY", "secret")
	t.Setenv("https_proxy", "http://proxy.example:3128")
	got, err := open(t, t.TempDir()).Build(t.Context(), tiny, nil)
	if err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile(filepath.Join(got.Rootfs, "env"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(env), "secret") || !strings.Contains(string(env),
		"https_proxy=http://proxy.example:3128\n") {
		t.Errorf("the environment is\n%s", env)
	}
}

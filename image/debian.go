package image

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

//go:embed setup.sh
var setup string

//go:embed cleanup.sh
var cleanup string

// A build is one run of mmdebstrap.
type build struct {
	recipe Recipe // complete
	tool   string // path of mmdebstrap
	dir    string // of everything that it makes
	cache  string // directory of downloaded packages
	lock   *os.File
	meter  *meter
}

// template is the directory that becomes the template.
func (b *build) template() string { return filepath.Join(b.dir, "template") }

// run makes template()/rootfs.
func (b *build) run(ctx context.Context) error {
	for _, d := range []string{b.cache, b.template(), b.debs(), b.files()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	for i, f := range b.recipe.Files {
		if err := os.WriteFile(b.file(i), []byte(f.Content), 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", aptReadOnly, "sh", b.tool}, b.args()...)...)
	cmd.Env = b.env(ctx)
	cmd.Stdout, cmd.Stderr = b.meter, b.meter
	// With a process and a mount namespace of its own nothing of it is left, no
	// process and no mount, when it ends or is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	// It shares the lock: should this process be killed and mmdebstrap live on,
	// nobody sweeps away what it is working on.
	cmd.ExtraFiles = []*os.File{b.lock}
	err := cmd.Run()
	if kerr := b.keepDebs(); err == nil {
		err = kerr
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.As(err, new(*exec.ExitError)) {
		return fmt.Errorf("mmdebstrap: %w\n%s", err, b.meter.output())
	}
	if err != nil {
		return err
	}
	return removeDevices(filepath.Join(b.template(), "rootfs"))
}

// aptReadOnly makes the state of this machine's own apt and dpkg read-only for a command
// that is executed in a mount namespace of its own. apt-get works on it whenever the
// configuration that mmdebstrap has made is not there, and then fails.
const aptReadOnly = `set -e
for dir in /var/lib/apt /var/lib/apt/lists /var/cache/apt /var/cache/apt/archives /var/lib/dpkg; do
	[ ! -d $dir ] || { mount --rbind $dir $dir && mount -o remount,bind,ro $dir; }
done
exec "$@"`

// removeDevices removes device nodes, which are of no use in a sandbox and which no
// archive brings.
func removeDevices(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeDevice != 0 {
			err = os.Remove(path)
		}
		return err
	})
}

// options are those that every run of mmdebstrap has.
var options = []string{"--verbose", "--mode=root", "--variant=minbase", "--format=directory",
	"--skip=download/empty", "--skip=essential/unlink", // which would throw the cache away
	"--skip=cleanup/apt", // cleanup does it without apt
	`--aptopt=Acquire::Languages "none"`, `--aptopt=APT::Install-Recommends "false"`,
	"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/info/*",
	"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
	"--dpkgopt=path-include=/usr/share/doc/*/copyright",
	"--dpkgopt=force-unsafe-io", // keep flushes once, in the end
}

// args are mmdebstrap's.
func (b *build) args() []string {
	archives := `"$1/var/cache/apt/archives"`
	args := append(slices.Clone(options),
		"--setup-hook=mkdir -p "+archives+"; find "+quote(b.cache)+" -name '*.deb' -exec cp -l -t "+archives+" {} +",
		"--customize-hook="+setup)
	if len(b.recipe.Packages) > 0 {
		args = append(args, "--include="+strings.Join(b.recipe.Packages, ","))
	}
	for i, f := range b.recipe.Files {
		args = append(args, fmt.Sprintf(`--customize-hook=chroot "$1" sh -c 'mkdir -p "${0%%/*}" && cat >"$0" && chmod "$1" "$0"' %s %s <%s`,
			quote(f.Path), strconv.FormatUint(uint64(f.Mode), 8), quote(b.file(i))))
	}
	// Without what has been superseded in the archive since.
	// apt-get would take this machine's configuration for one that is not there.
	args = append(args, `--customize-hook=[ ! -s "$MMDEBSTRAP_APT_CONFIG" ] || APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q autoclean; find `+
		archives+" -maxdepth 1 -name '*.deb' -exec cp -l -t "+quote(b.debs())+" {} +")
	for _, command := range b.recipe.Run {
		args = append(args, `--customize-hook=chroot "$1" sh -c `+quote(command))
	}
	args = append(args, "--customize-hook="+cleanup, b.recipe.Suite, filepath.Join(b.template(), "rootfs"))
	return append(args, b.recipe.Mirrors...)
}

func (b *build) debs() string      { return filepath.Join(b.dir, "debs") }
func (b *build) files() string     { return filepath.Join(b.dir, "files") }
func (b *build) file(i int) string { return filepath.Join(b.files(), strconv.Itoa(i)) }

// keepDebs makes the packages of this build the cache, if it has got that far.
func (b *build) keepDebs() error {
	if got, err := os.ReadDir(b.debs()); err != nil || len(got) == 0 {
		return err
	}
	if err := os.RemoveAll(b.cache); err != nil {
		return err
	}
	return os.Rename(b.debs(), b.cache)
}

// env is mmdebstrap's environment. Nothing of ours is in it except the way out:
// the packages' scripts and the recipe's commands inherit it.
func (b *build) env(ctx context.Context) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
		"DEBIAN_FRONTEND=noninteractive", "TMPDIR=" + b.dir,
		"PYTHONHASHSEED=0", // the order in sets, such as that of matplotlib's fonts
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if _, ok := os.LookupEnv("http_proxy"); !ok {
		if proxy := aptProxy(ctx); proxy != "" {
			env = append(env, "http_proxy="+proxy)
		}
	}
	return env
}

// aptProxy returns the proxy of this machine's apt, or "".
func aptProxy(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%v", "Acquire::http::Proxy").Output()
	if err != nil { // not a Debian
		return ""
	}
	return strings.TrimSpace(string(out))
}

// quote quotes a string for sh.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

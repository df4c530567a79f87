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
	"regexp"
	"runtime"
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
	dir    string // scratch directory
	cache  string // directory of downloaded packages
	lock   *os.File
	meter  *meter
}

// template returns the directory that becomes the template.
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
	if !isRoot() {
		return b.runAsUser(ctx)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", aptReadOnly, "sh", b.tool}, b.args()...)...)
	cmd.Env = b.env(ctx)
	cmd.Stdout, cmd.Stderr = b.meter, b.meter
	// Its own process and mount namespaces end with it, so that neither processes nor
	// mounts remain when it exits or is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS,
		Setpgid: true}
	// It inherits the lock: if this process is killed and mmdebstrap lives on, no other
	// process removes its directory.
	cmd.ExtraFiles = []*os.File{b.lock}
	// It ends with this process, however that ends. The signal is sent when the thread that started it
	// ends, so this thread must live until then.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread()
	err := cmd.Run()
	runtime.UnlockOSThread()
	if kerr := b.cacheDebs(); err == nil {
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

// aptReadOnly runs a command with the state of this machine's apt and dpkg mounted
// read-only; the command needs its own mount namespace. apt-get falls back to the machine's
// state if mmdebstrap's configuration is missing, and then fails rather than change it.
const aptReadOnly = `set -e
for dir in /var/lib/apt /var/lib/apt/lists /var/cache/apt /var/cache/apt/archives /var/lib/dpkg; do
	[ ! -d $dir ] || { mount --rbind $dir $dir && mount -o remount,bind,ro $dir; }
done
exec "$@"`

// removeDevices removes device nodes. A sandbox cannot use them, and archives do not carry
// them.
func removeDevices(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeDevice != 0 {
			err = os.Remove(path)
		}
		return err
	})
}

// The options that differ for an ordinary user, see userArgs.
const (
	rootMode        = "--mode=root"
	directoryFormat = "--format=directory"
)

// options are mmdebstrap's options for every build of root.
var options = []string{"--verbose", rootMode, "--variant=minbase", directoryFormat,
	"--skip=download/empty", "--skip=essential/unlink", // both would delete the cache
	"--skip=cleanup/apt", // cleanup.sh does it without apt
	`--aptopt=Acquire::Languages "none"`, `--aptopt=APT::Install-Recommends "false"`,
	"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/info/*",
	"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
	"--dpkgopt=path-include=/usr/share/doc/*/copyright",
	"--dpkgopt=force-unsafe-io", // install syncs once, at the end
}

// args returns mmdebstrap's arguments for root.
func (b *build) args() []string {
	archives := `"$1/var/cache/apt/archives"`
	before := []string{"--setup-hook=mkdir -p " + archives + "; find " + quote(b.cache) +
		" -name '*.deb' -exec cp -l -t " + archives + " {} +"}
	var files []string
	for i, f := range b.recipe.Files {
		files = append(files,
			fmt.Sprintf(
				`--customize-hook=chroot "$1" sh -c 'mkdir -p "${0%%/*}" && cat >"$0" && chmod "$1" "$0"' %s %s <%s`,
				quote(f.Path), strconv.FormatUint(uint64(f.Mode), 8), quote(b.file(i))))
	}
	after := []string{"--customize-hook=find " + archives + " -maxdepth 1 -name '*.deb' -exec cp -l -t " +
		quote(b.debs()) + " {} +"}
	args := append(b.common(before, files, after), b.recipe.Suite, filepath.Join(b.template(), "rootfs"))
	return append(args, b.recipe.Mirrors...)
}

// common returns the arguments before the suite. before are hooks that provide cached packages, files
// those that write the recipe's files, and after those that store the packages.
func (b *build) common(before, files, after []string) []string {
	args := append(slices.Clone(options), before...)
	args = append(args,
		// Some packages put links there when they are installed, and fail without.
		`--essential-hook=mkdir -p "$1/usr/share/man/man1" "$1/usr/share/man/man7" "$1/usr/share/man/man8"`,
		"--customize-hook="+setup)
	if len(b.recipe.Packages) > 0 {
		args = append(args, "--include="+strings.Join(b.recipe.Packages, ","))
	}
	if len(b.recipe.Exclude) > 0 {
		args = append(args, `--essential-hook=mkdir -p "$1/usr/share/python3/bcep"; printf '%s\n' `+
			quote(uncompiled(b.recipe.Exclude))+` >"$1/usr/share/python3/bcep/berth"`)
	}
	for _, pattern := range b.recipe.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+pattern)
	}
	args = append(args, files...)
	// autoclean drops packages that the archive has superseded. Without mmdebstrap's
	// configuration, apt-get would use this machine's.
	args = append(args,
		`--customize-hook=[ ! -s "$MMDEBSTRAP_APT_CONFIG" ] || APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q autoclean`)
	args = append(args, after...)
	// Commands may download, perhaps through a proxy that has its own certificate authority.
	args = append(args,
		`--customize-hook=[ ! -e `+hostCertificates+` ] || cp `+hostCertificates+` "$1`+certificates+`"`)
	for _, command := range b.recipe.Run {
		args = append(args,
			`--customize-hook=PIP_CERT=`+certificates+` NODE_EXTRA_CA_CERTS=`+certificates+` chroot "$1" sh -c `+quote(
				command))
	}
	return append(args, "--customize-hook="+cleanup)
}

// uncompiled makes a file of Debian's byte-compilation exclude patterns: py3compile fails if a file of a package is
// not there.
func uncompiled(patterns []string) string {
	lines := make([]string, len(patterns))
	for i, p := range patterns {
		expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(p))
		lines[i] = "re|-4.0|/|" + expression + "$"
	}
	return strings.Join(lines, "\n")
}

// The certificates of this machine, and where commands of a recipe find them during the
// build.
const (
	hostCertificates = "/etc/ssl/certs/ca-certificates.crt"
	certificates     = "/tmp/host-certificates.crt"
)

func (b *build) debs() string      { return filepath.Join(b.dir, "debs") }
func (b *build) files() string     { return filepath.Join(b.dir, "files") }
func (b *build) file(i int) string { return filepath.Join(b.files(), strconv.Itoa(i)) }

// cacheDebs replaces the package cache with this build's packages. It does nothing if the
// build has not downloaded any.
func (b *build) cacheDebs() error {
	if got, err := os.ReadDir(b.debs()); err != nil || len(got) == 0 {
		return err
	}
	if err := os.RemoveAll(b.cache); err != nil {
		return err
	}
	return os.Rename(b.debs(), b.cache)
}

// env returns mmdebstrap's environment, which the packages' scripts and the recipe's
// commands inherit. It takes only the proxies from this process's environment.
func (b *build) env(ctx context.Context) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
		"DEBIAN_FRONTEND=noninteractive", "TMPDIR=" + b.dir,
		"PYTHONHASHSEED=0", // makes the order of sets reproducible, such as matplotlib's fonts
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

// aptProxy returns the proxy of this machine's apt, or "" if it has none.
func aptProxy(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%v", "Acquire::http::Proxy").Output()
	if err != nil { // not a Debian
		return ""
	}
	return strings.TrimSpace(string(out))
}

// quote quotes a string for sh.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

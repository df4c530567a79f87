package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/layer"
)

// cachedDebs is the archive of downloaded packages in the cache of an ordinary user.
const cachedDebs = "packages.tar"

// stopTime bounds how long an interrupted mmdebstrap may take to remove its files, which this user
// cannot remove.
const stopTime = time.Minute

// runAsUser makes template()/rootfs without root. mmdebstrap works in a user namespace with the
// user's subordinate ids, outside of the store, and writes a tar archive. The archive is unpacked
// like a layer of an image.
func (b *build) runAsUser(ctx context.Context) error {
	root := filepath.Join(b.template(), "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", endGroup, "sh", b.tool}, b.userArgs()...)...)
	cmd.Env = append(b.env(ctx), "TMPDIR="+sharedTemp(os.Getenv("TMPDIR")))
	cmd.Dir = "/" // the namespace may not be able to reach the working directory
	cmd.ExtraFiles = []*os.File{b.lock}
	// Only mmdebstrap can remove the files of a build, which belong to subordinate ids. So it is asked to
	// end, also when this process ends: run explains the thread.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	from, to := io.Pipe()
	cmd.Stdout, cmd.Stderr = to, b.meter
	unpacked := make(chan error, 1)
	go func() {
		err := unpackTree(ctx, root, from)
		from.CloseWithError(err)
		unpacked <- err
	}()
	runtime.LockOSThread()
	err := cmd.Run()
	runtime.UnlockOSThread()
	to.Close()
	uerr := <-unpacked
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case uerr != nil && !errors.Is(uerr, io.ErrUnexpectedEOF):
		return fmt.Errorf("unpack the built files: %w", uerr)
	case err != nil:
		return fmt.Errorf("mmdebstrap: %w\n%s", err, b.meter.output())
	case uerr != nil:
		return fmt.Errorf("unpack the built files: %w", uerr)
	}
	return b.cacheDebs()
}

// endGroup runs a command. SIGTERM ends its process group, and the command can clean up.
const endGroup = `trap 'trap "" TERM; kill -TERM 0' TERM
"$@" &
wait $!
code=$?
[ $code -le 128 ] || { wait $!; code=$?; }
exit $code`

// unpackTree unpacks an archive into root, with owners in notes.
func unpackTree(ctx context.Context, root string, archive io.Reader) error {
	r, err := beneath.Open(root)
	if err != nil {
		return err
	}
	defer r.Close()
	applier := &layer.Applier{Root: r, Notes: true, Limits: layer.Limits{Bytes: DefaultMaxBytes}}
	archive = until(ctx, archive, nil)
	if err := applier.Apply(archive); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, archive) // what tar appends to an archive
	return err
}

// userArgs returns mmdebstrap's arguments for an ordinary user. Hooks run with subordinate ids, which
// cannot read this user's files: mmdebstrap copies files for them.
func (b *build) userArgs() []string {
	var before, files, after []string
	if old := filepath.Join(b.cache, cachedDebs); exists(old) {
		before = []string{`--setup-hook=mkdir -p "$1/var/cache/apt"`, "--setup-hook=tar-in " + quote(old) +
			" /var/cache/apt"}
	}
	for i, f := range b.recipe.Files {
		files = append(files,
			`--customize-hook=chroot "$1" sh -c 'mkdir -p "${0%/*}"' `+quote(f.Path),
			"--customize-hook=upload "+quote(b.file(i))+" "+quote(f.Path),
			`--customize-hook=chroot "$1" sh -c 'chmod "$1" "$0"' `+quote(f.Path)+" "+strconv.FormatUint(
				uint64(f.Mode), 8))
	}
	after = []string{
		// apt gives these directories to its own user, except if root builds.
		`--customize-hook=chown 0:0 "$1/var/cache/apt/archives/partial" "$1/var/lib/apt/lists/partial"`,
		"--customize-hook=tar-out /var/cache/apt/archives " + quote(filepath.Join(b.debs(), cachedDebs)),
	}
	args := b.common(before, files, after)
	for i, arg := range args {
		switch arg {
		case rootMode:
			args[i] = "--mode=unshare"
		case directoryFormat:
			args[i] = "--format=tar"
		}
	}
	args = append(args, b.recipe.Suite, "-")
	return append(args, b.recipe.Mirrors...)
}

// sharedTemp returns dir if other users can reach it, as subordinate ids must, or else /var/tmp.
func sharedTemp(dir string) string {
	if !filepath.IsAbs(dir) {
		return "/var/tmp"
	}
	for up := filepath.Clean(dir); ; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil || info.Mode()&0o001 == 0 {
			return "/var/tmp"
		}
		if up == "/" {
			return filepath.Clean(dir)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// CheckBuild returns an error if this process cannot build templates from packages. The error names
// the command that provides the missing part.
func CheckBuild() error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return errors.New("building templates needs mmdebstrap: apt-get install mmdebstrap")
	}
	if isRoot() {
		return nil
	}
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf(
				"building a template without root needs %s: as root, run apt-get install uidmap; or use an image: berth image pull",
				program)
		}
	}
	return checkSubordinate("/etc", strconv.Itoa(os.Getuid()))
}

// neededIDs is the number of subordinate ids that Debian's packages need: up to nogroup, 65534.
const neededIDs = 65536

// checkSubordinate returns an error unless the files passwd, subuid and subgid in dir give a user
// enough subordinate ids. Like mmdebstrap, it considers the first entry of the user's name.
func checkSubordinate(dir, uid string) error {
	name := ""
	for _, f := range table(filepath.Join(dir, "passwd")) {
		if len(f) > 2 && f[2] == uid && name == "" {
			name = f[0]
		}
	}
	if name == "" {
		if name = os.Getenv("USER"); name == "" { // of a directory service
			return fmt.Errorf(
				"building a template without root needs an account with subordinate ids, and the user id %s has none; use an image instead: berth image pull", uid)
		}
	}
	have, free := map[string]int{}, 100000
	for _, kind := range []string{"subuid", "subgid"} {
		for _, f := range table(filepath.Join(dir, kind)) {
			if len(f) != 3 {
				continue
			}
			first, err := parseID(f[1])
			n, nerr := parseID(f[2])
			if err != nil || nerr != nil {
				continue
			}
			free = max(free, first+n)
			if _, twice := have[kind]; f[0] == name && !twice {
				have[kind] = n
			}
		}
	}
	ids := fmt.Sprintf("%d-%d", free, free+neededIDs-1)
	for _, kind := range []string{"subuid", "subgid"} {
		switch n, ok := have[kind]; {
		case !ok:
			return fmt.Errorf(
				"building a template without root needs subordinate ids: as root, run usermod --add-subuids %s --add-subgids %s %s; or use an image: berth image pull",
				ids, ids, name)
		case n < neededIDs:
			return fmt.Errorf(
				"building a template without root needs %d subordinate ids, and the first line of %s in /etc/%s has %d: correct it as root; or use an image: berth image pull",
				neededIDs, name, kind, n)
		}
	}
	return nil
}

// table returns the fields of the lines of a file such as /etc/passwd. A file that cannot be read has
// none.
func table(path string) (lines [][]string) {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.Split(strings.TrimSpace(line), ":"))
	}
	return lines
}

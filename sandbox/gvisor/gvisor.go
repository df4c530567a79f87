// Package gvisor runs sandboxes on gVisor, a kernel in user space.
//
// A sandbox is two host processes, the sentry (that kernel) and the gofer (which opens the
// template's files for it), started by Berth's own build of runsc. All state is on disk and in
// the kernel, none in this process:
//
//	StateDir/
//	  instance             names the cgroups of this state directory
//	  instance.directory   identifies the directory: a copy gets another name
//	  seed.tar             files of every sandbox beside its template
//	  skeleton/HASH/       the guest program, overlaid on every template
//	  images/              of templates and of the skeleton, if they are not mounted
//	  sandboxes/ID/        exists until the sandbox is destroyed
//	    sandbox.json       the Spec and where its parts are
//	    pid                the sentry's process id
//	    sealed/            encrypted with a key that only the kernel has, if supported
//	      config.json      the OCI bundle
//	      runsc/           runsc's own state
//	      disk/            the writable layer, one unlinked file
//	    rootfs/            mount point of the template, for the gofer only
//	    run/               a small tmpfs: guest/ (bound into the sandbox), log/
//
// plus one cgroup berth-INSTANCE/ID in each hierarchy. docs/decisions/ explains these choices.
//
// A user other than root has neither cgroups nor mounts. Then a sandbox has one more process,
// see warden, and reads its template from an image.
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// Options are the paths of a Driver's files.
type Options struct {
	// StateDir holds the sandboxes, whose files are on its volume. Open creates it if it does
	// not exist. Only one process at a time may use a state directory.
	StateDir string

	// RunscPath is the berth-runsc program.
	RunscPath string

	// GuestPath is the statically linked berth-guest program. Open copies it.
	GuestPath string

	// ImageDir holds images of templates, and several state directories may share it. The
	// default is StateDir/images. Root needs none.
	ImageDir string

	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// unsealed makes the warning about a volume without encryption appear once in the log of a process.
var unsealed sync.Once

// A Driver runs sandboxes on gVisor. Its methods are safe for concurrent use.
type Driver struct {
	base     *host.Driver[instance]
	opts     Options
	log      *slog.Logger
	rootless bool           // this process is not root
	cgroups  host.Hierarchy // of root's sandboxes
	seals    bool           // files of sandboxes are encrypted
	skeleton string
	images   sandbox.Images         // of templates, without root
	runsc    *os.File               // the program, in memory
	version  func() (string, error) // of the programs, as recorded in checkpoints
}

// name is the driver's name in errors.
const name = "gvisor"

var _ sandbox.Driver = (*Driver)(nil)

// Open checks that this machine can run sandboxes and prepares StateDir. Its errors are for the
// operator.
func Open(opts Options) (*Driver, error) {
	for _, p := range []*string{&opts.RunscPath, &opts.GuestPath} {
		if abs, err := filepath.Abs(*p); err == nil {
			*p = abs
		}
	}
	if err := checkMachine(opts); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	bootID, err := sandbox.BootID()
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	d := &Driver{opts: opts, log: opts.Logger, version: versionOf(opts.RunscPath, opts.GuestPath),
		rootless: os.Geteuid() != 0}
	d.base = &host.Driver[instance]{Name: name, BootID: bootID, New: d.at}
	if !d.rootless {
		if d.cgroups, err = host.FindHierarchy(); err != nil {
			return nil, fmt.Errorf("gvisor: %w", err)
		}
	}
	if d.log == nil {
		d.log = slog.Default()
	}
	if err := d.prepareStateDir(); err != nil {
		return nil, fmt.Errorf("gvisor: state directory: %w", err)
	}
	if d.runsc, err = loadProgram(opts.RunscPath); errors.Is(err, unix.EACCES) {
		d.log.Warn("gvisor: the kernel forbids to execute programs from memory (sysctl vm.memfd_noexec); sandboxes at their memory limit may thrash",
			"err", err)
		d.runsc, err = os.Open(opts.RunscPath)
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: load %s: %w", opts.RunscPath, err)
	}
	return d, nil
}

// Features returns the capabilities of gVisor: all of them for root. Another user has no
// cgroups to limit CPU, and cannot set the owners of files on the host.
func (d *Driver) Features() sandbox.Features {
	return sandbox.Features{
		Isolation:   "gvisor",
		Pause:       true,
		MemoryLimit: true,
		CPULimit:    !d.rootless,
		PIDLimit:    true,
		DiskLimit:   true,
		LimitsShown: true,
		Routes:      true,
		Mounts:      !d.rootless,
		Erases:      d.seals,
	}
}

// discardCopies removes the sandboxes in a copied state directory.
func (d *Driver) discardCopies() error {
	d.log.Warn("gvisor: the state directory is a copy; its sandboxes are left to the original", "dir", d.opts.StateDir)
	return sandbox.Discard(filepath.Join(d.opts.StateDir, "sandboxes"))
}

// prepareStateDir creates the files that all sandboxes share.
func (d *Driver) prepareStateDir() (err error) {
	if d.base.Dir, err = sandbox.OpenDir(filepath.Join(d.opts.StateDir, "sandboxes")); err != nil {
		return err
	}
	// The path has no symbolic links or relative parts, because runsc changes its root.
	if d.opts.StateDir, err = filepath.EvalSymlinks(d.opts.StateDir); err != nil {
		return err
	}
	if d.opts.StateDir, err = filepath.Abs(d.opts.StateDir); err != nil {
		return err
	}
	if strings.ContainsAny(d.opts.StateDir, ",\n") {
		return fmt.Errorf("%q: runsc does not support a comma in the path", d.opts.StateDir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.opts.StateDir, &st); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	if st.Type == unix.TMPFS_MAGIC {
		d.log.Warn("gvisor: the state directory is in memory; files of sandboxes count against their memory limit",
			"dir", d.opts.StateDir)
	}
	if err := host.CanSeal(d.opts.StateDir); err != nil {
		level := slog.LevelDebug
		if _, err := os.Stat(d.seedPath()); errors.Is(err, fs.ErrNotExist) {
			level = slog.LevelWarn // only at the first start; berth doctor says it at any time
		}
		unsealed.Do(func() {
			d.log.Log(context.Background(), level,
				"gvisor: the volume of the state directory does not encrypt directories; files of a sandbox may be recovered from it after the sandbox is destroyed",
				"err", err)
		})
	} else {
		d.seals = true
	}
	if d.base.Instance, err = sandbox.Instance(d.opts.StateDir, d.discardCopies); err != nil {
		return err
	}
	if err := writeSeed(d.seedPath()); err != nil {
		return err
	}
	ids, err := d.base.Dir.List()
	if err != nil {
		return err
	}
	d.skeleton, err = writeSkeleton(filepath.Join(d.opts.StateDir, "skeleton"), d.opts.GuestPath, len(ids) > 0)
	if err != nil || !d.rootless {
		return err
	}
	return d.prepareImages()
}

// Package gvisor runs sandboxes on gVisor, a kernel in user space.
//
// A sandbox is two host processes, the sentry (that kernel) and the gofer (which
// opens the template's files for it), started by our own build of runsc. All
// state is on disk and in the kernel, none in this process:
//
//	StateDir/
//	  instance             names the cgroups of this state directory
//	  instance.directory   which directory that is: a copy of it takes another name
//	  seed.tar             what every sandbox finds besides its template
//	  skeleton/HASH/       the guest program, laid over every template
//	  images/              of templates and of the skeleton, where they are not mounted
//	  sandboxes/ID/        there as long as the sandbox is
//	    sandbox.json       what it was made from
//	    pid                the sentry's process id
//	    sealed/            encrypted with a key that only the kernel has, if it can
//	      config.json      the OCI bundle
//	      runsc/           runsc's own state
//	      disk/            the writable layer, one unlinked file
//	    rootfs/            the template, mounted there for the gofer alone
//	    run/               a small tmpfs: guest/ (bound into the sandbox), log/
//
// plus one cgroup berth-INSTANCE/ID in each hierarchy. docs/decisions/ says why
// the pieces are what they are.
//
// An ordinary user has neither cgroups nor mounts. There a sandbox has one process
// more, see warden, and reads its template from an image of it.
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// Options say where the driver finds its things.
type Options struct {
	// StateDir holds the sandboxes. It is created if need be, and its volume
	// carries what they write. One process at a time drives a state directory.
	StateDir string

	// RunscPath is the berth-runsc program.
	RunscPath string

	// GuestPath is the berth-guest program, statically linked. Open copies it.
	GuestPath string

	// ImageDir keeps images of templates, which several state directories may share;
	// StateDir/images if it is "". Root needs none.
	ImageDir string

	// Logger, slog.Default if nil.
	Logger *slog.Logger
}

// A Driver runs sandboxes on gVisor. Its methods are safe for concurrent use.
type Driver struct {
	opts     Options
	dir      sandbox.Dir
	log      *slog.Logger
	rootless bool           // this process is an ordinary user's
	cgroups  host.Hierarchy // of root's
	instance string
	bootID   string
	seals    bool // what sandboxes write is encrypted
	skeleton string
	images   sandbox.Images         // of templates, for an ordinary user
	runsc    *os.File               // the program, in memory
	version  func() (string, error) // of the programs, as a checkpoint tells it

	processes host.Processes // sentries, or wardens
}

var _ sandbox.Driver = (*Driver)(nil)

// Open checks that this machine can run sandboxes and prepares StateDir. What it
// returns as an error is meant for the operator.
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
	d := &Driver{opts: opts, log: opts.Logger, bootID: bootID, version: versionOf(opts.RunscPath, opts.GuestPath), rootless: os.Geteuid() != 0}
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
		d.log.Warn("gvisor: programs may not be executed from memory (sysctl vm.memfd_noexec); sandboxes at their memory limit may thrash", "err", err)
		d.runsc, err = os.Open(opts.RunscPath)
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: loading %s: %w", opts.RunscPath, err)
	}
	return d, nil
}

// Features says what gVisor can do: all of it, for root. An ordinary user has no cgroup
// to share processors out with, and cannot give files on the host the owners that they
// have in a sandbox.
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

// List returns the ids of all sandboxes that exist, alive or dead.
func (d *Driver) List(context.Context) ([]string, error) { return d.dir.List() }

// discardCopies removes what a copy of a state directory has of sandboxes.
func (d *Driver) discardCopies() error {
	d.log.Warn("gvisor: the state directory is a copy; its sandboxes are left to the original", "dir", d.opts.StateDir)
	return sandbox.Discard(filepath.Join(d.opts.StateDir, "sandboxes"))
}

// prepareStateDir makes what all sandboxes share.
func (d *Driver) prepareStateDir() (err error) {
	if d.dir, err = sandbox.OpenDir(filepath.Join(d.opts.StateDir, "sandboxes")); err != nil {
		return err
	}
	// Without symbolic links and relative parts: runsc changes its root.
	if d.opts.StateDir, err = filepath.EvalSymlinks(d.opts.StateDir); err != nil {
		return err
	}
	if d.opts.StateDir, err = filepath.Abs(d.opts.StateDir); err != nil {
		return err
	}
	if strings.ContainsAny(d.opts.StateDir, ",\n") {
		return fmt.Errorf("%q: runsc cannot take a comma in the path", d.opts.StateDir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.opts.StateDir, &st); err != nil {
		return err
	}
	if st.Type == unix.TMPFS_MAGIC {
		d.log.Warn("gvisor: the state directory is in memory; what sandboxes write counts against their memory", "dir", d.opts.StateDir)
	}
	if err := host.CanSeal(d.opts.StateDir); err != nil {
		d.log.Warn("gvisor: the volume of the state directory does not encrypt directories; what a sandbox wrote may be found on it after the sandbox is gone", "err", err)
	} else {
		d.seals = true
	}
	if d.instance, err = sandbox.Instance(d.opts.StateDir, d.discardCopies); err != nil {
		return err
	}
	if err := writeSeed(d.seedPath()); err != nil {
		return err
	}
	ids, err := d.dir.List()
	if err != nil {
		return err
	}
	d.skeleton, err = writeSkeleton(filepath.Join(d.opts.StateDir, "skeleton"), d.opts.GuestPath, len(ids) > 0)
	if err != nil || !d.rootless {
		return err
	}
	return d.prepareImages()
}

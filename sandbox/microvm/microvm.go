package microvm

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// Options are the paths and settings of a Driver.
type Options struct {
	// StateDir holds the sandboxes, whose files are on its volume. Open creates it if it does
	// not exist. Only one process at a time may use a state directory.
	StateDir string

	// ImageDir holds templates as disk images, and several state directories may share it. The
	// default is StateDir/images.
	ImageDir string

	// QEMUPath is the program qemu-system-x86_64. If empty, Open searches for it.
	QEMUPath string

	// KernelDir holds a kernel from FetchKernel.
	KernelDir string

	// GuestPath is the statically linked berth-guest program. Open copies it.
	GuestPath string

	// Accel is "kvm", "tcg" (emulation, which is at least ten times slower), or empty: KVM if a
	// machine starts with it.
	Accel string

	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// unsealed makes the warning about a volume without encryption appear once in the log of a process.
var unsealed sync.Once

// A Driver runs sandboxes as virtual machines. Its methods are safe for concurrent use.
type Driver struct {
	base      *host.Driver[instance]
	opts      Options
	images    sandbox.Images
	log       *slog.Logger
	cgroups   host.Hierarchy
	seals     bool   // files of sandboxes are encrypted
	kernel    string // path of the image
	initramfs string
	machine   machine
	patience  time.Duration // time limit of the first start of a machine
	share     string        // path of the program that serves mounts; "" without mounts
	noMounts  string        // why mounts do not work
}

// name is the driver's name in errors.
const name = "microvm"

var _ sandbox.Driver = (*Driver)(nil)

// Open checks that this machine can run sandboxes and prepares StateDir. Its errors are for the
// operator. The first time it tries KVM, which takes a second, or ten if KVM does not work.
func Open(opts Options) (*Driver, error) {
	d, err := open(opts)
	if err != nil {
		return nil, fmt.Errorf("microvm: %w", err)
	}
	return d, nil
}

func open(opts Options) (*Driver, error) {
	if opts.ImageDir == "" {
		opts.ImageDir = filepath.Join(opts.StateDir, "images")
	}
	if err := checkMachine(&opts); err != nil {
		return nil, err
	}
	cgroups, err := host.FindHierarchy()
	if err != nil {
		return nil, err
	}
	bootID, err := sandbox.BootID()
	if err != nil {
		return nil, err
	}
	d := &Driver{opts: opts, log: opts.Logger, cgroups: cgroups}
	d.base = &host.Driver[instance]{Name: name, BootID: bootID, New: d.at}
	if d.log == nil {
		d.log = slog.Default()
	}
	if err := d.prepareStateDir(); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if d.machine, err = d.chooseMachine(); err != nil {
		return nil, err
	}
	d.patience = patience
	if d.machine.emulated() {
		d.patience = patienceEmulated
	}
	if err := d.tryShare(); err != nil {
		d.log.Info("microvm: volumes cannot be mounted", "err", err)
		d.share, d.noMounts = "", err.Error()
	}
	if d.machine.emulated() {
		d.log.Warn("microvm: KVM does not work here; sandboxes are emulated, which is slow")
	}
	return d, nil
}

// Features returns the capabilities of the driver: all of them on every machine that Open
// accepts, except mounts, which need virtiofsd.
func (d *Driver) Features() sandbox.Features {
	f := sandbox.Features{
		Isolation:   "microvm",
		Pause:       true,
		MemoryLimit: true,
		CPULimit:    true,
		PIDLimit:    true,
		DiskLimit:   true,
		OwnKernel:   true,
		Routes:      true,
		Mounts:      d.share != "",
		Erases:      d.seals,
	}
	if d.machine.emulated() {
		f.Slowness = emulation
	}
	return f
}

// emulation is the factor by which programs take longer under emulation: ten for computation,
// more for starting many processes.
const emulation = 10

// NoMounts returns why sandboxes cannot have mounts, or "" if they can.
func (d *Driver) NoMounts() string { return d.noMounts }

// Emulated reports whether sandboxes run without KVM, slowly.
func (d *Driver) Emulated() bool { return d.machine.emulated() }

// discardCopies removes the sandboxes in a copied state directory.
func (d *Driver) discardCopies() error {
	d.log.Warn("microvm: the state directory is a copy; its sandboxes are left to the original", "dir", d.opts.StateDir)
	return sandbox.Discard(filepath.Join(d.opts.StateDir, "sandboxes"))
}

// prepareStateDir creates the files that all sandboxes share.
func (d *Driver) prepareStateDir() (err error) {
	if d.base.Dir, err = sandbox.OpenDir(filepath.Join(d.opts.StateDir, "sandboxes")); err != nil {
		return err
	}
	for _, dir := range []*string{&d.opts.StateDir, &d.opts.ImageDir} {
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return err
		}
		if *dir, err = filepath.EvalSymlinks(*dir); err != nil {
			return err
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if d.images, err = sandbox.OpenImages(d.opts.ImageDir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.rootDir(), 0o700); err != nil {
		return err
	}
	if d.base.Instance, err = sandbox.Instance(d.opts.StateDir, d.discardCopies); err != nil {
		return err
	}
	if err := d.dropImages(); err != nil {
		return err
	}
	if err := host.CanSeal(d.opts.StateDir); err != nil {
		unsealed.Do(func() {
			d.log.Warn("microvm: the volume of the state directory does not encrypt directories; files of a sandbox may be recovered from it after the sandbox is destroyed",
				"err", err)
		})
	} else {
		d.seals = true
	}
	kernel, err := FindKernel(d.opts.KernelDir)
	if err != nil {
		return err
	}
	d.kernel = kernel.Image
	d.initramfs, err = makeInitramfs(filepath.Join(d.opts.StateDir, "initramfs"), d.opts.GuestPath, kernel)
	return err
}

// rootDir is the mount point of each QEMU's root, in its own mount namespace.
func (d *Driver) rootDir() string { return filepath.Join(d.opts.StateDir, "root") }

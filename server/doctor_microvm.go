package server

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/sandbox/microvm"
)

// machines checks what the driver microvm needs, and whether KVM works.
func machines(state string, config *Config) []Finding {
	qemu := Finding{What: "qemu", OK: true}
	path, err := microvm.FindQEMU(config.MicroVM.QEMU)
	if qemu.Says = path; err != nil {
		qemu = Finding{What: "qemu", Says: err.Error(), Advice: "apt-get install --no-install-recommends qemu-system-x86"}
	}
	kernel := Finding{What: "vm kernel", OK: true}
	k, err := microvm.FindKernel(kernelDir(state, config))
	if kernel.Says = k.Image; err != nil {
		kernel = Finding{What: "vm kernel", Says: err.Error(), Advice: "run berth image kernel"}
	}
	if !qemu.OK || !kernel.OK {
		return []Finding{qemu, kernel}
	}
	kvm, volumes := acceleration(state, config)
	return []Finding{qemu, kernel, volumes, kvm}
}

// acceleration tries to start a machine with KVM and to mount volumes in it. That /dev/kvm
// opens is no proof.
func acceleration(state string, config *Config) (f, volumes Finding) {
	f, volumes = Finding{What: "kvm"}, Finding{What: "volumes", OK: true, Says: "can be mounted"}
	dir, err := scratch(state)
	if err != nil {
		f.Says = err.Error()
		return f, volumes
	}
	defer os.RemoveAll(dir)
	d, err := OpenDriver(dir, withKernel(state, config), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Says, volumes.Says = err.Error(), "not known"
		return f, volumes
	}
	if why := d.(*microvm.Driver).NoMounts(); why != "" {
		volumes.Says, volumes.Advice = "cannot be mounted", why
	}
	f.OK = true
	if d.Features().Slowness > 1 {
		f.Says = "no machine starts with it; containers are emulated"
		f.Advice = "that is ten and more times slower; on a virtual machine, ask its host for nested virtualisation"
		return f, volumes
	}
	f.Says = "works"
	return f, volumes
}

// withKernel returns the configuration for a driver on another state directory.
func withKernel(state string, config *Config) *Config {
	c := *config
	if abs, err := filepath.Abs(kernelDir(state, config)); err == nil {
		c.MicroVM.Kernel = abs
	}
	return &c
}

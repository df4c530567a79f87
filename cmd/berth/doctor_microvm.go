package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/sandbox/microvm"
)

// machines looks at what the driver microvm needs, and whether KVM works.
func machines(state string, config *Config) []finding {
	qemu := finding{What: "qemu", OK: true}
	path, err := microvm.FindQEMU(config.MicroVM.QEMU)
	if qemu.Says = path; err != nil {
		qemu = finding{What: "qemu", Says: err.Error(), Advice: "apt-get install --no-install-recommends qemu-system-x86"}
	}
	kernel := finding{What: "vm kernel", OK: true}
	k, err := microvm.FindKernel(kernelDir(state, config))
	if kernel.Says = k.Image; err != nil {
		kernel = finding{What: "vm kernel", Says: err.Error(), Advice: "run berth image kernel"}
	}
	if !qemu.OK || !kernel.OK {
		return []finding{qemu, kernel}
	}
	return []finding{qemu, kernel, acceleration(state, config)}
}

// acceleration tries whether a machine starts with KVM. That /dev/kvm opens says little.
func acceleration(state string, config *Config) finding {
	f := finding{What: "kvm"}
	dir, err := os.MkdirTemp("", "berth-doctor-*")
	if err != nil {
		f.Says = err.Error()
		return f
	}
	defer os.RemoveAll(dir)
	d, err := openDriver(dir, withKernel(state, config), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Says = err.Error()
		return f
	}
	f.OK = true
	if d.Features().Slowness > 1 {
		f.Says = "no machine starts with it; containers are emulated"
		f.Advice = "that is ten and more times slower; on a virtual machine, ask its host for nested virtualisation"
		return f
	}
	f.Says = "works"
	return f
}

// withKernel returns the configuration for a driver on another state directory.
func withKernel(state string, config *Config) *Config {
	c := *config
	if abs, err := filepath.Abs(kernelDir(state, config)); err == nil {
		c.MicroVM.Kernel = abs
	}
	return &c
}

package doctor

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/sandbox/microvm"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
)

// machines checks the requirements of the driver microvm, and whether KVM works.
func machines(state string, conf *config.Config) []Finding {
	qemu := Finding{What: "qemu", OK: true}
	path, err := microvm.FindQEMU(conf.MicroVM.QEMU)
	if qemu.Detail = path; err != nil {
		qemu = Finding{What: "qemu", Detail: err.Error(),
			Advice: "apt-get install --no-install-recommends qemu-system-x86"}
	}
	kernel := Finding{What: "vm kernel", OK: true}
	k, err := microvm.FindKernel(driver.KernelDir(state, conf))
	if kernel.Detail = k.Image; err != nil {
		kernel = Finding{What: "vm kernel", Detail: err.Error(), Fix: config.InState(state, "image", "kernel")}
	}
	if !qemu.OK || !kernel.OK {
		return []Finding{qemu, kernel}
	}
	kvm, volumes := acceleration(state, conf)
	return []Finding{qemu, kernel, volumes, kvm}
}

// acceleration starts a machine with KVM and mounts volumes in it. That /dev/kvm opens does not
// prove that KVM works.
func acceleration(state string, config *config.Config) (f, volumes Finding) {
	f, volumes = Finding{What: "kvm"}, Finding{What: "volumes", OK: true, Detail: "can be mounted"}
	dir, err := scratch(state)
	if err != nil {
		f.Detail = err.Error()
		return f, volumes
	}
	defer os.RemoveAll(dir)
	d, err := driver.Open(dir, withKernel(state, config), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Detail, volumes.Detail = err.Error(), "unknown"
		return f, volumes
	}
	if why := d.(*microvm.Driver).NoMounts(); why != "" {
		volumes.Detail, volumes.Advice = "cannot be mounted", why
	}
	f.OK = true
	if d.Features().Slowness > 1 {
		f.Detail = "no virtual machine starts with KVM; containers are emulated"
		f.Advice = "emulation is more than ten times slower; if this is a virtual machine, enable nested virtualization on its host"
		return f, volumes
	}
	f.Detail = "works"
	return f, volumes
}

// withKernel returns the configuration for a driver on another state directory.
func withKernel(state string, config *config.Config) *config.Config {
	c := *config
	if abs, err := filepath.Abs(driver.KernelDir(state, config)); err == nil {
		c.MicroVM.Kernel = abs
	}
	return &c
}

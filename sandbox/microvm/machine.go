package microvm

import (
	"fmt"
	"math"
	"runtime"
	"strconv"

	"github.com/berth-run/berth/guest/boot"
	"github.com/berth-run/berth/sandbox"
)

// A machine is a machine type of QEMU.
type machine struct {
	accel string // kvm or tcg
	kind  string // microvm or q35
}

// machines are tried in this order. QEMU's microvm has no timer with which Linux could
// calibrate the CPU's clock, and so needs KVM's own clock: the emulated machine has to be q35.
var machines = []machine{{"kvm", "microvm"}, {"kvm", "q35"}, {"tcg", "q35"}}

// emulated reports whether the machine's CPU is emulated.
func (m machine) emulated() bool { return m.accel == "tcg" }

// ports is the maximal number of concurrent connections to a guest.
const ports = 8

// Descriptors of QEMU beside the standard ones.
const (
	fdTemplate = 3 + iota
	fdDisk
	fdMonitor
	fdConsole
	fdPorts                   // and the following ones
	fdShare = fdPorts + ports // if there are mounts
)

// overhead is the memory that QEMU may need beside the machine's. The emulator caches
// translated code.
func (m machine) overhead() int64 {
	if m.emulated() {
		return 256 << 20
	}
	return 128 << 20
}

// codeCache limits the emulator's cache of translated code, in MiB.
const codeCache = 96

// processors returns the number of a machine's CPUs.
func processors(l sandbox.Limits) int {
	return min(max(1, int(math.Ceil(l.CPU))), runtime.NumCPU())
}

// base returns QEMU's arguments that do not depend on the sandbox. Paths are relative to QEMU's
// root.
func (m machine) base() []string {
	accel, cpu := "kvm", "host"
	if m.emulated() {
		accel = fmt.Sprintf("tcg,thread=multi,tb-size=%d", codeCache)
		// This CPU lacks the wide vectors of newer ones, whose emulation is slower than doing
		// without, but has the features that distributions require (x86-64-v2).
		cpu = "Nehalem,+rdrand"
	}
	kind := "microvm,rtc=on,isa-serial=on"
	if m.kind == "q35" {
		kind = "q35,usb=off,vmport=off,smbus=off,sata=off,hpet=on"
	}
	return []string{
		"-M", kind, "-accel", accel, "-cpu", cpu,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", rootKernel, "-initrd", rootInitramfs,
		"-append", m.kernelOptions(),
	}
}

// kernelOptions returns the kernel's command line.
func (m machine) kernelOptions() string {
	const always = "console=ttyS0 quiet panic=-1 reboot=t nokaslr lsm=capability audit=0 nowatchdog " +
		"8250.nr_uarts=1 cryptomgr.notests random.trust_cpu=on init_on_alloc=0"
	if m.emulated() {
		// The CPU's mitigations between processes of one sandbox are slow to emulate, and the
		// emulated CPU does not need them.
		return always + " mitigations=off no_timer_check tsc=reliable"
	}
	return always
}

// args returns QEMU's arguments for a sandbox's machine. With mounts its memory is shared with
// the program that serves them.
func (m machine) args(l sandbox.Limits, mounts bool) []string {
	suffix := "-pci"
	if m.kind == "microvm" {
		suffix = "-device"
	}
	args := append(m.base(),
		"-m", strconv.FormatInt(l.Memory>>20, 10), "-smp", strconv.Itoa(processors(l)),
		"-add-fd", fmt.Sprintf("fd=%d,set=1", fdTemplate),
		"-blockdev", "driver=file,filename=/dev/fdset/1,node-name=template-file,read-only=on,locking=off",
		"-blockdev", "driver=raw,file=template-file,node-name=template,read-only=on",
		"-device", "virtio-blk"+suffix+",drive=template,serial="+boot.TemplateSerial,
		"-add-fd", fmt.Sprintf("fd=%d,set=2", fdDisk),
		"-blockdev",
		"driver=file,filename=/dev/fdset/2,node-name=disk-file,discard=unmap,locking=off,cache.no-flush=on",
		"-blockdev", "driver=raw,file=disk-file,node-name=disk,discard=unmap",
		"-device", "virtio-blk"+suffix+",drive=disk,serial="+boot.DiskSerial,
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d,server=on,wait=off", fdMonitor),
		"-mon", "chardev=monitor,mode=control",
		"-chardev", fmt.Sprintf("socket,id=console,fd=%d,server=on,wait=off", fdConsole),
		"-serial", "chardev:console",
		"-device", fmt.Sprintf("virtio-serial%s,max_ports=%d", suffix, ports+1),
	)
	for i := range ports {
		args = append(args,
			"-chardev", fmt.Sprintf("socket,id=port%d,fd=%d,server=on,wait=off", i, fdPorts+i),
			"-device", fmt.Sprintf("virtserialport,chardev=port%d,name=%s%d,nr=%d", i, boot.PortPrefix, i, i+1))
	}
	if mounts {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-memfd,id=memory,share=on,size=%dM", l.Memory>>20), "-machine",
			"memory-backend=memory",
			"-chardev", fmt.Sprintf("socket,id=mounts,fd=%d", fdShare),
			"-device", "vhost-user-fs"+suffix+",chardev=mounts,tag="+boot.MountsTag)
	}
	return args
}

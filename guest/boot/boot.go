// Package boot sets up a virtual machine for the guest. It is the machine's first program
// and stays the parent of all others.
//
// The kernel starts it from the initial file system. It loads modules, lays the
// sandbox's disk over the template, opens the serial lines and starts the guest as
// PID 1 of new namespaces, with the rights of a sandbox's root under other drivers. When
// the guest ends, the machine ends.
package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names that the driver and this package use for the parts of a machine.
const (
	InitPath       = "/init"        // this program, in the initial file system
	ModuleDir      = "/modules"     // there, in the order of their names
	TemplateSerial = "template"     // the disk with the template
	DiskSerial     = "disk"         // the writable disk
	ConfigName     = "sandbox.json" // on that disk
	PortPrefix     = "guest."       // and a number: the names of the serial lines
	MountsTag      = "mounts"       // the file system shared with the host
)

// A Config describes how the guest of a machine is started. It holds no secret.
type Config struct {
	Hostname string
	Env      []string // of the guest
	PIDs     int      // processes and threads of commands
	Memory   int64    // bytes that the machine has
	Ports    int      // serial lines
	Files    []File   // laid over the template
	Mounts   bool     // volumes are mounted at sandbox.MountRoot
}

// A File is a file, or a directory if it has no content and its name ends in a slash.
type File struct {
	Name    string
	Mode    uint32
	UID     int
	Content string
}

// Paths in the initial file system.
const (
	templateDir = "/template"
	diskDir     = "/disk"
	rootDir     = "/root"
)

// Called reports whether this process is the machine's first, or the child of the first
// that becomes the guest.
func Called() bool {
	return os.Getpid() == 1 && (os.Args[0] == InitPath || os.Args[0] == childName)
}

// Main runs the role that Called detected. It does not return.
func Main() {
	if os.Args[0] == childName {
		fmt.Fprintln(os.Stderr, "boot:", becomeGuest())
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "boot:", run())
	// Without power management, a restart ends the machine.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

// run sets up the machine and runs the guest. It returns the reason to end the machine.
func run() error {
	if err := mountKernel(); err != nil {
		return err
	}
	if console, err := os.OpenFile("/dev/console", os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(int(console.Fd()), fd, 0)
		}
	}
	if err := errors.Join(loadModules(), setLoopbackUp()); err != nil {
		return err
	}
	if err := harden(); err != nil {
		return err
	}
	config, err := mountDisks()
	if err != nil {
		return err
	}
	if err := furnish(config); err != nil {
		return err
	}
	cgroup, err := limit(config)
	if err != nil {
		return err
	}
	ports, err := openPorts(config.Ports)
	if err != nil {
		return err
	}
	return startGuest(config, ports, cgroup)
}

// mountKernel mounts the kernel's own file systems.
func mountKernel() error {
	for _, m := range []struct{ dir, kind string }{{"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}} {
		if err := mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return err
		}
	}
	return nil
}

// mount makes dir and mounts there.
func mount(source, dir, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, dir, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, dir, err)
	}
	return nil
}

// loadModules loads the modules of the initial file system and removes their files.
func loadModules() error {
	entries, err := os.ReadDir(ModuleDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(ModuleDir, e.Name()))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("module %s: %w", e.Name(), err)
		}
	}
	return os.RemoveAll(ModuleDir)
}

// settings disable kernel features that no command needs: user namespaces, in which every
// user has all capabilities, and features with a history of kernel exploits. They cannot
// be changed back: /proc/sys is read-only in the sandbox.
var settings = map[string]string{
	"user/max_user_namespaces":         "0",
	"kernel/modules_disabled":          "1",
	"kernel/kexec_load_disabled":       "1",
	"kernel/unprivileged_bpf_disabled": "1",
	"kernel/perf_event_paranoid":       "3",
	"kernel/io_uring_disabled":         "2",
	"kernel/kptr_restrict":             "2",
	"kernel/dmesg_restrict":            "1",
	"vm/unprivileged_userfaultfd":      "0",
}

// harden applies the settings that the kernel has.
func harden() error {
	for name, value := range settings {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// setLoopbackUp sets lo up, the only network interface.
func setLoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return os.NewSyscallError("ioctl", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}

// mountDisks lays the disk over the template on rootDir.
func mountDisks() (Config, error) {
	var c Config
	for _, m := range []struct {
		serial, dir string
		flags       uintptr
		options     string
	}{
		{TemplateSerial, templateDir, unix.MS_RDONLY | unix.MS_NOATIME, ""},
		{DiskSerial, diskDir, unix.MS_NOATIME, "discard"},
	} {
		device, err := findDisk(m.serial)
		if err != nil {
			return c, err
		}
		if err := mount(device, m.dir, "ext4", m.flags, m.options); err != nil {
			return c, err
		}
	}
	raw, err := os.ReadFile(filepath.Join(diskDir, ConfigName))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("decode configuration: %w", err)
	}
	for _, dir := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(diskDir, dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return c, err
		}
	}
	// Without redirects the overlay copies a directory of the template that is renamed, so
	// that a scan finds its content changed and snapshots contain it.
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,redirect_dir=off,xino=on,volatile",
		templateDir, diskDir, diskDir)
	return c, mount("overlay", rootDir, "overlay", unix.MS_NODEV, options)
}

// findDisk returns the device of the disk with the serial number.
func findDisk(serial string) (string, error) {
	disks, err := filepath.Glob("/sys/block/vd*")
	if err != nil {
		return "", err
	}
	for _, d := range disks {
		if raw, err := os.ReadFile(filepath.Join(d, "serial")); err == nil && strings.TrimSpace(string(raw)) == serial {
			return filepath.Join("/dev", filepath.Base(d)), nil
		}
	}
	return "", fmt.Errorf("no disk %q among %d", serial, len(disks))
}

// guestPIDs is the number of threads of the guest itself, in addition to the sandbox's
// processes.
const guestPIDs = 64

// limit creates the control group that counts processes and returns its open directory,
// with which a process is started in it.
func limit(c Config) (*os.File, error) {
	const group = "/cgroup/sandbox"
	if err := mount("cgroup2", "/cgroup", "cgroup2", 0, ""); err != nil {
		return nil, err
	}
	if err := os.WriteFile("/cgroup/cgroup.subtree_control", []byte("+pids"), 0); err != nil {
		return nil, err
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(group+"/pids.max", fmt.Appendln(nil, c.PIDs+guestPIDs), 0); err != nil {
		return nil, err
	}
	return os.Open(group)
}

// portsTimeout bounds the wait for the serial lines, which appear one by one.
const portsTimeout = time.Minute

// openPorts opens the serial lines. Their devices are not in the sandbox.
func openPorts(n int) ([]*os.File, error) {
	var ports []*os.File
	for end := time.Now().Add(portsTimeout); len(ports) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return nil, fmt.Errorf("got %d serial lines, want %d", len(ports), n)
		}
		name := fmt.Sprintf("%s%d", PortPrefix, len(ports))
		path, err := findPort(name)
		if err != nil {
			return nil, err
		}
		if path == "" {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) { // not yet
			continue
		}
		if err != nil {
			return nil, err
		}
		ports = append(ports, f)
	}
	return ports, nil
}

// findPort returns the device of the serial line of that name, or "" if it does not
// exist yet.
func findPort(name string) (string, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, path := range names {
		if raw, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(raw)) == name {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(path))), nil
		}
	}
	return "", nil
}

// childName is the argv[0] of the process that becomes the guest.
const childName = "berth-boot"

// startGuest starts the guest in new namespaces and returns when it has ended.
func startGuest(c Config, ports []*os.File, cgroup *os.File) error {
	env, err := guestEnv(c.Env, len(ports))
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{childName}, Env: env,
		Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: ports,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
				unix.CLONE_NEWCGROUP,
			UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Setsid: true,
		}}
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(string(raw))
	if err := cmd.Start(); err != nil {
		return err
	}
	for _, p := range ports {
		p.Close()
	}
	cgroup.Close()
	return fmt.Errorf("the guest has ended: %v", cmd.Wait())
}

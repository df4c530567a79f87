package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Paths in the sandbox.
const (
	guestDir  = "/.berth"
	guestPath = guestDir + "/guest"
	mountsDir = "/mnt/volumes" // sandbox.MountRoot
)

// PortsEnv is the variable with the number of the guest's serial lines, which are open
// from descriptor FirstPort on.
const (
	PortsEnv  = "BERTH_GUEST_PORTS"
	FirstPort = 3
)

// The share of a machine's memory for commands, in sixteenths of the part that its kernel
// has not taken at the start.
const commandMemory = 15

// guestEnv returns the guest's environment: the configured variables, and those known
// only in the machine.
func guestEnv(env []string, ports int) ([]string, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, os.NewSyscallError("sysinfo", err)
	}
	memory := uint64(info.Totalram) * uint64(info.Unit) / 16 * commandMemory
	return append(env, fmt.Sprintf("%s=%d", PortsEnv, ports), fmt.Sprintf("BERTH_MEMORY_LIMIT=%d", memory)), nil
}

// furnish adds to the root the files that every sandbox has besides its template.
func furnish(c Config) error {
	for _, f := range c.Files {
		path := filepath.Join(rootDir, filepath.Clean("/"+f.Name))
		if strings.HasSuffix(f.Name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
		} else {
			_ = os.Remove(path) // a link, perhaps
			if err := os.WriteFile(path, []byte(f.Content), 0o600); err != nil {
				return err
			}
		}
		if err := errors.Join(os.Chmod(path, os.FileMode(f.Mode)), os.Chown(path, f.UID, f.UID)); err != nil {
			return err
		}
	}
	return bindGuest()
}

// bindGuest mounts the guest program, which is this one, into the sandbox. It shares its
// pages with the initial file system.
func bindGuest() error {
	path := rootDir + guestPath
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(InitPath, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding the guest: %w", err)
	}
	return os.NewSyscallError("mount", unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|
		unix.MS_NOSUID|unix.MS_NODEV, ""))
}

// becomeGuest makes the sandbox's own mounts, drops the capabilities that its root must not
// have, and runs the guest, as PID 1 of its namespace.
func becomeGuest() error {
	runtime.LockOSThread() // capabilities belong to threads, and exec uses this one's
	var c Config
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return fmt.Errorf("decode configuration: %w", err)
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return os.NewSyscallError("sethostname", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := mountSandbox(c); err != nil {
		return err
	}
	// The initial file system cannot be unmounted; the new root covers it.
	if err := errors.Join(os.Chdir(rootDir), unix.Mount(rootDir, "/", "", unix.MS_MOVE, ""), unix.Chroot("."),
		os.Chdir("/")); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(null.Fd()), 0, 0); err != nil {
		return os.NewSyscallError("dup3", err)
	}
	null.Close()
	if err := giveUp(c); err != nil {
		return err
	}
	if err := FilterCalls(); err != nil {
		return err
	}
	return os.NewSyscallError("exec", syscall.Exec(guestPath, []string{guestPath}, os.Environ()))
}

// mountSandbox mounts the kernel's file systems that a sandbox sees.
func mountSandbox(c Config) error {
	const none = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		dir, kind string
		flags     uintptr
		options   string
	}{
		{"/proc", "proc", none, ""},
		{"/sys", "sysfs", none | unix.MS_RDONLY, ""},
		{"/dev", "tmpfs", unix.MS_NOSUID, "mode=755,size=64k,nr_inodes=256"},
		{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,mode=620,gid=5,ptmxmode=666"},
		{"/dev/shm", "tmpfs", none, fmt.Sprintf("mode=1777,size=%d", c.Memory/2)},
	} {
		if err := mount(m.kind, rootDir+m.dir, m.kind, m.flags, m.options); err != nil {
			return err
		}
	}
	if c.Mounts {
		if err := mount(MountsTag, rootDir+mountsDir, "virtiofs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return err
		}
	}
	if err := makeDevices(rootDir + "/dev"); err != nil {
		return err
	}
	return mask()
}

// masked and readOnly are the files of /proc that control the whole machine: the sandbox's
// root must not be able to end or reconfigure it through them.
var (
	masked   = []string{"acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi"}
	readOnly = []string{"bus", "fs", "irq", "sys", "sysrq-trigger"}
)

func mask() error {
	for _, name := range masked {
		path := filepath.Join(rootDir, "proc", name)
		fi, err := os.Stat(path)
		if err != nil {
			continue // this kernel does not have it
		}
		if fi.IsDir() {
			err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "size=4k")
		} else {
			err = unix.Mount(rootDir+"/dev/null", path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("masking %s: %w", path, err)
		}
	}
	if err := maskRegisters(); err != nil {
		return err
	}
	for _, name := range readOnly {
		path := filepath.Join(rootDir, "proc", name)
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("binding %s: %w", path, err)
		}
		if err := unix.Mount("", path, "",
			unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("making %s read-only: %w", path, err)
		}
	}
	return nil
}

// maskRegisters hides the registers of the machine's devices: root could read them even
// from a read-only sysfs, and each read reaches the emulator.
func maskRegisters() error {
	for _, pattern := range []string{"resource[0-9]*", "rom"} {
		paths, err := filepath.Glob(filepath.Join(rootDir, "sys/devices/pci*/*", pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := unix.Mount(rootDir+"/dev/null", path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mask %s: %w", path, err)
			}
		}
	}
	return nil
}

// makeDevices creates the devices of a sandbox.
func makeDevices(dir string) error {
	old := unix.Umask(0)
	defer unix.Umask(old)
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			return os.NewSyscallError("mknod", err)
		}
	}
	if err := unix.Mknod(filepath.Join(dir, "tty"), unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	tun := filepath.Join(dir, "net/tun")
	if err := errors.Join(os.Mkdir(filepath.Dir(tun), 0o755), unix.Mknod(tun, unix.S_IFCHR|0o600,
		int(unix.Mkdev(10, 200)))); err != nil {
		return err
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd",
		"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// rootCapabilities are the capabilities of a sandbox's root: those under gVisor, and two
// that the guest passes to no command.
var rootCapabilities = map[uintptr]bool{
	unix.CAP_AUDIT_WRITE: true, unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true,
	unix.CAP_FSETID: true, unix.CAP_KILL: true, unix.CAP_NET_BIND_SERVICE: true,
	unix.CAP_SETFCAP: true, unix.CAP_SETGID: true, unix.CAP_SETPCAP: true, unix.CAP_SETUID: true,
	unix.CAP_SYS_CHROOT: true,
	unix.CAP_SYS_TIME:   true, // for SetClock: the clock is the machine's own
	unix.CAP_NET_ADMIN:  true, // for the route for addresses
}

// giveUp sets the limits of a process and drops capabilities. It also drops them from the
// bounding set, so that exec cannot regain them.
func giveUp(c Config) error {
	for what, n := range map[int]uint64{unix.RLIMIT_NPROC: uint64(c.PIDs), unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	// When memory runs out the kernel must end the processes that use it, not the guest.
	// The guest resets this for its children.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		return err
	}
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		if rootCapabilities[capability] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return os.NewSyscallError("prctl", err)
		}
	}
	return nil
}

// clockSlack is how far the machine's clock may be behind the server's.
const clockSlack = time.Second

// SetClock sets the machine's clock, which stops while the machine is paused. It never
// sets it back, because recorded times, above all those of file changes, must stay in
// order.
func SetClock(now time.Time) {
	if time.Until(now) > clockSlack {
		tv := unix.NsecToTimeval(now.UnixNano())
		_ = unix.Settimeofday(&tv)
	}
}

package microvm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// Paths in QEMU's root.
const (
	rootKernel    = "/boot/vmlinuz"
	rootInitramfs = "/boot/initramfs"
)

// programPaths are the host's files that QEMU needs to start: libraries, its own modules,
// firmware. The existing ones are shown to it read-only.
var programPaths = []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/qemu", "/usr/share/seabios",
	"/etc/ld.so.cache"}

// A launch is one start of QEMU.
type launch struct {
	driver *Driver
	kvm    bool
	uid    int
	cgroup host.Cgroup
	args   []string
	files  []*os.File // descriptor 3 and up
	log    *os.File   // receives QEMU's output
	size   int64      // limit in bytes of the files that it writes
}

// start starts QEMU as its own user, in its cgroup, without capabilities and in namespaces with
// no other process. The namespaces are those of a thread that runs only this; they end with
// QEMU.
func (l launch) start() (*exec.Cmd, error) {
	cmd := &exec.Cmd{Path: l.driver.opts.QEMUPath, Args: append([]string{"qemu"}, l.args...), Dir: "/", Env: []string{},
		Stdout: l.log, Stderr: l.log, ExtraFiles: l.files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID,
			Credential: &syscall.Credential{Uid: uint32(l.uid), Gid: uint32(l.uid)}}}
	entered, err := l.cgroup.Enter(cmd)
	if err != nil {
		return nil, err
	}
	defer entered()
	err = host.OnOwnThread(func() error {
		if err := unix.Unshare(
			unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		// This comes before the root is changed, because these are files of the host.
		if err := l.cgroup.JoinThread(); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
		if err := l.changeRoot(); err != nil {
			return fmt.Errorf("create QEMU's root: %w", err)
		}
		if err := giveUp(); err != nil {
			return fmt.Errorf("drop privileges: %w", err)
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		if err := l.limitFiles(cmd.Process.Pid); err != nil {
			return errors.Join(fmt.Errorf("limits of files: %w", err), cmd.Process.Kill(), cmd.Wait())
		}
		return nil
	})
	if err == nil {
		_ = sandbox.PreferKill(cmd.Process.Pid)
	}
	return cmd, err
}

// limitFiles limits the size of the files that QEMU writes: it has the disk's image open, and
// could grow it. For this call the calling thread becomes QEMU's user, who may make it without
// privileges.
func (l launch) limitFiles(pid int) error {
	uid := uintptr(l.uid)
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} { // of this thread only
		if _, _, errno := unix.RawSyscall(call, uid, uid, uid); errno != 0 {
			return os.NewSyscallError("setresuid", errno)
		}
	}
	for what, n := range map[int]uint64{unix.RLIMIT_FSIZE: uint64(l.size), unix.RLIMIT_CORE: 0} {
		if err := unix.Prlimit(pid, what, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil &&
			!errors.Is(err, unix.ESRCH) {
			return os.NewSyscallError("prlimit", err)
		}
	}
	return nil
}

// giveUp prevents the processes that the calling thread starts from gaining privileges.
func giveUp() error {
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return os.NewSyscallError("prctl", err)
		}
	}
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// changeRoot creates a root for QEMU and makes it the calling thread's, in its own mount
// namespace.
func (l launch) changeRoot() error {
	return newRoot(l.driver.rootDir(), append(programPaths, l.driver.opts.QEMUPath), func(root string) error {
		return errors.Join(show(l.driver.kernel, root+rootKernel), show(l.driver.initramfs, root+rootInitramfs),
			makeDevices(root+"/dev"), l.makeKVM(root+"/dev"))
	})
}

// newRoot creates a root for a program with the shown paths of the host and the files that
// furnish adds. It makes it the root of the calling thread, which must have its own mount
// namespace. The root is mounted at dir and becomes read-only.
func newRoot(dir string, shown []string, furnish func(root string) error) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := unix.Mount("berth", dir, "tmpfs", unix.MS_NOSUID, "mode=0755,size=1m,nr_inodes=128"); err != nil {
		return os.NewSyscallError("mount", err)
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	for _, path := range shown {
		if err := show(path, filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	if err := furnish(dir); err != nil {
		return err
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := errors.Join(unix.Chdir(dir), unix.PivotRoot(".", ".")); err != nil {
		return err
	}
	// The old root covers the new one.
	return errors.Join(unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/"))
}

// show binds a file or directory of the host, if it exists, into QEMU's root. A link stays a
// link.
func show(path, to string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case fi.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case fi.IsDir():
		err = os.Mkdir(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := unix.Mount(path, to, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind", Path: path, Err: err}
	}
	return os.NewSyscallError("mount", unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|
		unix.MS_NOSUID|unix.MS_NODEV, ""))
}

// makeDevices creates the devices that programs expect.
func makeDevices(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "urandom": 9} {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			return os.NewSyscallError("mknod", err)
		}
	}
	return nil
}

// makeKVM creates the KVM device, if QEMU uses it.
func (l launch) makeKVM(dir string) error {
	if !l.kvm {
		return nil
	}
	kvm := filepath.Join(dir, "kvm")
	if err := unix.Mknod(kvm, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 232))); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	return os.Chown(kvm, l.uid, l.uid)
}

// hostPIDs bounds QEMU's threads, which are one for each CPU, its main loop, and those that
// wait for its disks, and the threads of the program that serves mounts.
func hostPIDs(l sandbox.Limits) int { return 128 + processors(l) }

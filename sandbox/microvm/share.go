package microvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// A program beside QEMU, virtiofsd, serves mounts to a machine. It has to open files as any of
// the sandbox's users, and so is root of a user namespace, in which the numbers up to
// shareUsers are unused on the host. The mounts are mapped to it (idmapped), so that files on
// their disks have the sandbox's numbers. Of the host it sees only the mounts, which are nodev
// and nosuid.

const (
	shareUsers = 1 << 16
	shareDir   = "/volumes" // in its root
	rootShare  = "/virtiofsd"

	// shareFiles bounds its open files: one for each file that the machine's kernel has looked
	// up and not forgotten. shareMemory covers them, in the kernel's memory and its own.
	shareFiles  = 1 << 18
	shareMemory = 512 << 20
	sharePIDs   = 32
)

// shareProgram returns the path of virtiofsd.
func shareProgram() (string, error) {
	for _, path := range []string{"/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"} {
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
			return filepath.EvalSymlinks(path)
		}
	}
	path, err := exec.LookPath("virtiofsd")
	if err != nil {
		return "", fmt.Errorf("%w (Debian has it in qemu-system-common, from 13 on in virtiofsd)", err)
	}
	return filepath.EvalSymlinks(path)
}

// A share is one start of the program.
type share struct {
	driver *Driver
	base   int // host uid of the sandbox's root
	mounts []mountRecord
	cgroup host.Cgroup
	socket *os.File // socket on which it listens
	log    *os.File // receives its output; may be nil
}

// start starts the program, which ends when QEMU closes its connection.
func (s share) start() (*exec.Cmd, error) {
	users, err := userNamespace(s.base)
	if err != nil {
		return nil, fmt.Errorf("create user namespace: %w", err)
	}
	defer users.Close()
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	cmd := &exec.Cmd{Path: rootShare, Dir: "/", Env: []string{}, Stdout: s.log, Stderr: s.log,
		ExtraFiles: []*os.File{s.socket},
		Args: []string{"virtiofsd", "--fd=3", fmt.Sprintf("--rlimit-nofile=%d", min(files.Max, shareFiles)), "-o",
			"source=" + shareDir,
			// Other sandboxes see a sandbox's writes immediately.
			"-o", "cache=auto,timeout=0", "-o", "announce_submounts", "-o", "log_level=err"},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true,
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
			UidMappings: mapping(s.base), GidMappings: mapping(s.base), GidMappingsEnableSetgroups: true,
			Credential: &syscall.Credential{}}}
	entered, err := s.cgroup.Enter(cmd)
	if err != nil {
		return nil, err
	}
	defer entered()
	err = host.OnOwnThread(func() error {
		if err := unix.Unshare(
			unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := s.cgroup.JoinThread(); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
		if err := s.changeRoot(int(users.Fd())); err != nil {
			return fmt.Errorf("create its root: %w", err)
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return errors.Join(fmt.Errorf("limits: %w", err), cmd.Process.Kill(), cmd.Wait())
		}
		return nil
	})
	return cmd, err
}

func mapping(base int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{HostID: base, Size: shareUsers}}
}

// changeRoot creates a root for the program and makes it the calling thread's. To mount its own
// /proc, the program must see one.
func (s share) changeRoot(users int) error {
	return newRoot(s.driver.rootDir(), programPaths, func(root string) error {
		if err := show(s.driver.share, root+rootShare); err != nil {
			return err
		}
		if err := makeDevices(root + "/dev"); err != nil {
			return err
		}
		if err := errors.Join(os.Mkdir(root+"/proc", 0o755), unix.Mount("/proc", root+"/proc", "",
			unix.MS_BIND|unix.MS_REC, "")); err != nil {
			return fmt.Errorf("bind /proc: %w", err)
		}
		if err := errors.Join(os.Mkdir(root+shareDir, 0o755), os.Chown(root+shareDir, s.base, s.base)); err != nil {
			return err
		}
		for _, m := range s.mounts {
			if err := mapMount(m, filepath.Join(root, shareDir, m.Name), users); err != nil {
				return fmt.Errorf("mount %s: %w", m.Name, err)
			}
		}
		return nil
	})
}

// mapMount mounts a mount at a path of the calling thread's namespace, mapped to a user
// namespace.
func mapMount(m mountRecord, place string, users int) error {
	if err := os.Mkdir(place, 0o755); err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: m.Source, Err: err}
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV |
		unix.MOUNT_ATTR_NOEXEC,
		Userns_fd: uint64(users)}
	if m.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return &os.PathError{Op: "mount_setattr", Path: m.Source, Err: err}
	}
	return os.NewSyscallError("movemount", unix.MoveMount(tree, "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// userNamespace returns a new user namespace, whose numbers from 0 on are the host's from base
// on. It is taken from a process that stops before its first instruction.
func userNamespace(base int) (*os.File, error) {
	runtime.LockOSThread() // this thread traces
	defer runtime.UnlockOSThread()
	cmd := &exec.Cmd{Path: "/proc/self/exe",
		SysProcAttr: &syscall.SysProcAttr{Ptrace: true, Cloneflags: unix.CLONE_NEWUSER,
			UidMappings: mapping(base), GidMappings: mapping(base), Pdeathsig: unix.SIGKILL}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
}

// startShare starts the program for a sandbox and returns QEMU's connection to it.
func (d *Driver) startShare(s instance, rec record) (*os.File, error) {
	socket, err := s.listen("volumes")
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	said, log, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd, err := share{driver: d, base: rec.Share, mounts: rec.Mounts, cgroup: s.cgroup, socket: socket,
		log: log}.start()
	log.Close()
	if err != nil {
		said.Close()
		return nil, fmt.Errorf("virtiofsd: %w", err)
	}
	go func() {
		defer said.Close()
		if words, _ := io.ReadAll(io.LimitReader(said, consoleSize)); len(words) > 0 {
			d.log.Warn("microvm: virtiofsd printed messages", "sandbox", s.id, "output", quote("virtiofsd", words))
		}
	}()
	go func() { _ = cmd.Wait() }()
	return s.connectFile("volumes")
}

// shareTimeout bounds the first answer of the program.
const shareTimeout = 10 * time.Second

// tryShare starts the program as for a sandbox with one mount, and waits for its first answer,
// which it sends after it has confined itself. An error is the reason why there are no mounts.
func (d *Driver) tryShare() (err error) {
	if d.share, err = shareProgram(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.opts.StateDir, "probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := errors.Join(os.Mkdir(dir+"/run", 0o700), os.Mkdir(dir+"/empty", 0o755)); err != nil {
		return err
	}
	// not the id of a sandbox
	s := instance{id: "probe.share", dir: dir, cgroup: d.cgroups.Group("berth-"+d.base.Instance, "probe.share")}
	if err := s.cgroup.Create(sandbox.Limits{Memory: shareMemory}.WithDefaults(), sharePIDs); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeGroup(s.cgroup)) }()
	f, err := d.startShare(s, record{Share: newUID() &^ (shareUsers - 1),
		Mounts: []mountRecord{{Name: "empty", Source: dir + "/empty", ReadOnly: true}}})
	if err != nil {
		return err
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(shareTimeout)); err != nil {
		return err
	}
	// This is a vhost-user request for the supported features. The answer is 64 bits.
	request := binary.NativeEndian.AppendUint32(nil, 1)
	request = binary.NativeEndian.AppendUint32(request, 1) // version
	request = binary.NativeEndian.AppendUint32(request, 0) // no payload
	if _, err := conn.Write(request); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, len(request)+8)); err != nil {
		return fmt.Errorf("virtiofsd does not answer: %w", err)
	}
	return nil
}

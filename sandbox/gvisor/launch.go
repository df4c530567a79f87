package gvisor

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox/host"
)

// launch starts cmd as the sandbox needs it: in its cgroup, in a network
// namespace with nothing but lo, and in a mount namespace in which s/rootfs shows
// the template. The namespaces are those of a thread that runs this and nothing
// else ever again; when the sandbox's processes are gone, so are the namespaces.
//
// `runsc` would make a network namespace too, but leave lo down, and without lo
// up gVisor gives the sandbox none.
func (s sandbox) launch(cmd *exec.Cmd, rootfs, skeleton string) error {
	layers := []string{skeleton, rootfs}
	if _, err := os.Stat(s.path(mountPoints)); err == nil {
		layers = append([]string{s.path(mountPoints)}, layers...)
	}
	entered, err := s.cgroup.Enter(cmd)
	if err != nil {
		return err
	}
	defer entered()
	return host.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := mountRootfs(s.path("rootfs"), layers); err != nil {
			return fmt.Errorf("mounting the template: %w", err)
		}
		if err := setLoopbackUp(); err != nil {
			return fmt.Errorf("lo: %w", err)
		}
		if err := s.cgroup.JoinThread(); err != nil {
			return fmt.Errorf("joining the cgroup: %w", err)
		}
		return cmd.Start()
	})
}

// mountRootfs mounts, in a mount namespace of the calling thread's own, layers, of
// which the first lies on top, on target. With lower layers only and no upper one an
// overlay cannot be written by anybody, whatever goes wrong above it.
func mountRootfs(target string, layers []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	// By descriptor, because a colon in a path would need escaping.
	var lower []string
	for _, dir := range layers {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		defer unix.Close(fd)
		lower = append(lower, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	options := "lowerdir=" + strings.Join(lower, ":") + ",redirect_dir=nofollow,metacopy=off"
	return unix.Mount("overlay", target, "overlay", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, options)
}

// setLoopbackUp sets lo up in the calling thread's network namespace.
func setLoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// highFD is the first descriptor number that the sentry uses for itself.
const highFD = 256

// runscCommand returns the runsc command that creates and starts the sandbox, or
// restores it from an image.
// Its output, the container's and the sentry's last words go to log.
func (d *Driver) runscCommand(s sandbox, disk int64, image string, log *os.File) (*exec.Cmd, error) {
	command := []string{"run"}
	if image != "" {
		command = []string{"restore", "--image-path=" + image}
	}
	cmd := exec.Command(procFD(d.runsc), append(append([]string{
		"--root=" + sealed + "/runsc", // relative, to stay below the length of a socket's path
		"--platform=systrap",
		"--network=sandbox",
		"--host-uds=create", // the guest binds its socket; nobody connects out
		"--directfs=false",  // the sentry opens no host files and holds no capabilities
		"--ignore-cgroups",
		"--host-settings=ignore",
		"--allow-suid", // sudo
		"--allow-rootfs-tar-annotation",
		fmt.Sprintf("--overlay2=root:dir=%s,size=%d", s.path(sealed+"/disk"), disk),
		"--panic-log=" + s.path("run/log/panic.log"),
	}, command...),
		"--detach", "--pid-file="+s.path("pid"), "--bundle="+s.path(sealed), "s")...)
	cmd.Dir = s.dir
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	// The sentry moves its standard streams to 256 and up. To grow the table of
	// descriptors of a process with threads, the kernel waits for an RCU grace
	// period (16 ms here). A child's table is made to fit what its parent has
	// open, so an open 256 in runsc spares the sentry the growth.
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = make([]*os.File, highFD-2)
	cmd.ExtraFiles[highFD-3] = null
	return cmd, nil
}

package gvisor

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mountRootfs mounts layers, topmost first, on target, in the calling thread's own mount
// namespace. An overlay without an upper layer cannot be written to, whatever fails above it.
func mountRootfs(target string, layers []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	// Descriptors are used because a colon in a path would need escaping.
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
	return os.NewSyscallError("mount", unix.Mount("overlay", target, "overlay", unix.MS_RDONLY|unix.MS_NODEV|
		unix.MS_NOSUID, options))
}

// setLoopbackUp sets lo up in the calling thread's network namespace.
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

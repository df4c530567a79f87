package docker

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/berth-run/berth/sandbox"
)

// ErrUnfiltered is returned for an engine that does not filter system calls.
var ErrUnfiltered = errors.New("the engine does not apply the filter of system calls that sandboxes need")

// Limits of a container on a shared kernel. Each is counted in one place only: files in a
// process, terminals in a mount.
const (
	maxFiles     = 4096
	maxTerminals = 64
)

// profile is the system call filter in the engines' format. It is based on that of current
// engines: older ones permit calls that have since been used to break out of containers
// (io_uring) or reach the host (AF_VSOCK). It permits fewer: only local and internet sockets
// and some of netlink, no 32-bit programs, whose socket calls cannot be distinguished, and no
// asynchronous I/O.
//
//go:embed seccomp.json
var profile []byte

// shareKernel limits a container's use of a kernel that it shares with others.
func (d *Driver) shareKernel(h *container.HostConfig) {
	var small bytes.Buffer
	_ = json.Compact(&small, profile) // it is embedded
	h.SecurityOpt = append(h.SecurityOpt, "seccomp="+small.String())
	h.Ulimits = append(h.Ulimits, &container.Ulimit{Name: "nofile", Soft: maxFiles, Hard: maxFiles})
	if d.noPTYs == "" {
		h.Mounts = append(h.Mounts, d.terminals())
	}
}

// terminals returns a mount of terminals with its own limit. It replaces the engine's, which is
// limited only by the machine's number for all containers. Engines mount any file system as a
// volume, and remove it with its container.
func (d *Driver) terminals() mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Target: "/dev/pts", VolumeOptions: &mount.VolumeOptions{
		NoCopy: true,
		Labels: map[string]string{labelInstance: d.instance},
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "devpts", "device": "devpts",
			"o": fmt.Sprintf("nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5,max=%d", maxTerminals)}},
	}}
}

// tryShared detects whether the engine applies the profile and whether it can limit terminals.
// It returns an error if the profile is not applied.
func (d *Driver) tryShared(ctx context.Context) error {
	prevents, err := d.try(ctx, d.hostConfig(sandbox.DefaultLimits), "filtered")
	if err == nil && prevents == "" {
		return nil
	}
	d.noPTYs = prevents
	if err != nil {
		d.noPTYs = err.Error()
	}
	prevents, err = d.try(ctx, d.hostConfig(sandbox.DefaultLimits), "filtered")
	if err != nil {
		prevents = err.Error()
	}
	if prevents != "" {
		return fmt.Errorf("%w: %s; let it use seccomp, or give it runsc as a runtime", ErrUnfiltered, prevents)
	}
	return nil
}

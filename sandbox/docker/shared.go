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

// ErrUnfiltered says that an engine cannot be used because it does not filter system calls.
var ErrUnfiltered = errors.New("the engine does not apply the filter of system calls that sandboxes need")

// What a container on a kernel that it shares with others may take of it. Each number
// counts in one place only: files in a process, terminals in a mount.
const (
	maxFiles     = 4096
	maxTerminals = 64
)

// profile is the filter of system calls, in the form that engines take. It is modelled on
// that of current engines: older ones let through what has been a way out of containers
// since (io_uring), or out of the machine (AF_VSOCK). It lets through less: no families of
// sockets but those of local and internet sockets and some of netlink, no programs of 32
// bits, whose socket calls cannot be distinguished, and no asynchronous I/O.
//
//go:embed seccomp.json
var profile []byte

// shareKernel bounds what a container may ask of a kernel that others use as well.
func (d *Driver) shareKernel(h *container.HostConfig) {
	var small bytes.Buffer
	_ = json.Compact(&small, profile) // it is ours
	h.SecurityOpt = append(h.SecurityOpt, "seccomp="+small.String())
	h.Ulimits = append(h.Ulimits, &container.Ulimit{Name: "nofile", Soft: maxFiles, Hard: maxFiles})
	if d.noPTYs == "" {
		h.Mounts = append(h.Mounts, d.terminals())
	}
}

// terminals returns a mount of terminals with a bound of its own, in the place of the
// engine's, which has none but the machine's for all containers. Engines mount any file
// system as a volume; it is removed with its container.
func (d *Driver) terminals() mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Target: "/dev/pts", VolumeOptions: &mount.VolumeOptions{
		NoCopy: true,
		Labels: map[string]string{labelInstance: d.instance},
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "devpts", "device": "devpts",
			"o": fmt.Sprintf("nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5,max=%d", maxTerminals)}},
	}}
}

// tryShared finds out whether the engine applies the profile, without which it is
// refused, and whether it can bound terminals.
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

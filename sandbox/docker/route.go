package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox"
)

// tunDevice is the device for the guest's route for addresses.
const tunDevice = "/dev/net/tun"

// guestCapability lets the guest, and no other program, create the route in the sandbox's own
// network: programs that the guest starts cannot get it. Because the guest has more
// capabilities than root in the sandbox, root cannot trace it.
const guestCapability = "CAP_NET_ADMIN"

// allowRoute gives a container the device and capability for the route for addresses. Engines
// disable IPv6 in containers without a network.
func allowRoute(h *container.HostConfig) {
	h.CapAdd = append(slices.Clone(h.CapAdd), guestCapability)
	h.Devices = []container.DeviceMapping{{PathOnHost: tunDevice, PathInContainer: tunDevice, CgroupPermissions: "rw"}}
	h.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.default.disable_ipv6": "0"}
}

// tryRoute returns why a guest cannot create the route, or "". The engine's machine may lack
// the device, or a runtime may not support it.
func (d *Driver) tryRoute(ctx context.Context) (prevents string, err error) {
	host := d.hostConfig(sandbox.DefaultLimits)
	allowRoute(host)
	return d.try(ctx, host, "route")
}

// try runs the guest program with a test command in a container of its own. It returns the
// reason of a failure in words, or "" if the command succeeds.
func (d *Driver) try(ctx context.Context, host *container.HostConfig, command string) (prevents string, err error) {
	host.StorageOpt = nil
	made, err := d.client.ContainerCreate(ctx, client.ContainerCreateOptions{HostConfig: host,
		Config: &container.Config{
			Image: nothing, User: "0:0", Entrypoint: []string{guestPath, command},
			Labels: map[string]string{labelInstance: d.instance}}})
	if err != nil {
		return "", fmt.Errorf("create container: %w", err)
	}
	defer func() { err = errors.Join(err, d.remove(context.WithoutCancel(ctx), made.ID)) }()
	ended := d.client.ContainerWait(ctx, made.ID,
		client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := d.client.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return err.Error(), nil
	}
	select {
	case end := <-ended.Result:
		if end.StatusCode == 0 {
			return "", nil
		}
		return fmt.Sprintf("exit code %d%s", end.StatusCode, d.lastWords(ctx, made.ID)), nil
	case err := <-ended.Error:
		return "", err
	}
}

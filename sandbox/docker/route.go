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

// tunDevice is what the guest makes the route for addresses with.
const tunDevice = "/dev/net/tun"

// guestCapability is for the guest alone, to make the route in the sandbox's own
// network: no program that it starts can get it. As the guest has more than root in the
// sandbox has, root may not trace it either.
const guestCapability = "CAP_NET_ADMIN"

// allowRoute gives a container what the guest needs for the route for addresses. Engines
// switch IPv6 off where there is no network.
func allowRoute(h *container.HostConfig) {
	h.CapAdd = append(slices.Clone(h.CapAdd), guestCapability)
	h.Devices = []container.DeviceMapping{{PathOnHost: tunDevice, PathInContainer: tunDevice, CgroupPermissions: "rw"}}
	h.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.default.disable_ipv6": "0"}
}

// tryRoute reports whether a guest can make the route, in the words of what prevents it:
// the engine's machine may have no such device, or a runtime no use for it.
func (d *Driver) tryRoute(ctx context.Context) (prevents string, err error) {
	host := d.hostConfig(sandbox.DefaultLimits)
	allowRoute(host)
	return d.try(ctx, host, "route")
}

// try runs the guest program in a container of its own, with a command that tries
// something. It returns what prevents that, in words; "" if it works.
func (d *Driver) try(ctx context.Context, host *container.HostConfig, command string) (prevents string, err error) {
	host.StorageOpt = nil
	made, err := d.client.ContainerCreate(ctx, client.ContainerCreateOptions{HostConfig: host, Config: &container.Config{
		Image: nothing, User: "0:0", Entrypoint: []string{guestPath, command}, Labels: map[string]string{labelInstance: d.instance}}})
	if err != nil {
		return "", fmt.Errorf("making a container: %w", err)
	}
	defer func() { err = errors.Join(err, d.remove(context.WithoutCancel(ctx), made.ID)) }()
	ended := d.client.ContainerWait(ctx, made.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
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

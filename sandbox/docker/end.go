package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// destroyTimeout bounds Destroy if ctx has no deadline.
const destroyTimeout = time.Minute

// pauseTimeout bounds Pause if ctx has no deadline.
const pauseTimeout = 20 * time.Second

// Pause stops every process in the sandbox. runc fails quickly if a control group does not
// freeze, which happens on a busy machine or while its processes fork; then Pause retries.
func (d *Driver) Pause(ctx context.Context, id string) error {
	name, err := d.container(id)
	if err != nil {
		return d.wrap("pause", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := d.client.ContainerPause(ctx, name, client.ContainerPauseOptions{})
		if err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "unable to freeze") {
			return d.wrap("pause", id, err)
		}
		select {
		case <-ctx.Done():
			return d.wrap("pause", id, errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

// Resume continues a paused sandbox.
func (d *Driver) Resume(ctx context.Context, id string) error {
	name, err := d.container(id)
	if err == nil {
		_, err = d.client.ContainerUnpause(ctx, name, client.ContainerUnpauseOptions{})
	}
	if err != nil {
		return d.wrap("resume", id, err)
	}
	return nil
}

// Destroy kills the sandbox and removes its container with all files that it wrote.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	name, err := d.container(id)
	if err == nil {
		d.disks.forget(name)
		err = d.remove(ctx, name)
	}
	if err == nil {
		err = d.mounts.unbind(id)
	}
	if err != nil {
		return fmt.Errorf("docker: destroy %s: %w", id, err)
	}
	return nil
}

// remove removes a container, if it exists. The engine answers when its files are removed,
// except while another call removes it.
func (d *Driver) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	c, err := d.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err == nil && c.Container.State != nil && c.Container.State.Paused {
		// Some runtimes do not kill paused containers. An error of a container that has ended
		// is ignored.
		_, _ = d.client.ContainerUnpause(ctx, name, client.ContainerUnpauseOptions{})
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := d.client.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if !errdefs.IsConflict(err) {
			return fmt.Errorf("remove container: %w", err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

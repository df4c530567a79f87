package container

import (
	"bytes"
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/sandbox"
)

// volumes mounts volumes into the sandboxes of containers.
type volumes struct {
	opts *Options
	work *workers
}

// resolve validates the volumes of a request and sets them in c.
func (v *volumes) resolve(ctx context.Context, p berth.ProjectID, c *berth.Container,
	want []berth.VolumeMount) (err error) {
	if len(want) == 0 {
		return nil
	}
	if v.opts.Volumes == nil || !v.opts.Driver.Features().Mounts {
		return berth.Invalid("berth.volumes", "This server's driver cannot mount volumes.")
	}
	c.Berth.Volumes, err = v.opts.Volumes.Resolve(ctx, p, want)
	return err
}

// hold prevents the removal of a container's volumes until its sandbox is removed. It is called
// for each registered instance before its sandbox is created.
func (v *volumes) hold(ctx context.Context, s *instance) error {
	if len(s.body.Berth.Volumes) == 0 || v.opts.Volumes == nil {
		return nil
	}
	return v.opts.Volumes.Hold(ctx, s.project, s.id, s.body.Berth.Volumes)
}

// retain is hold for a sandbox that already runs and so uses the volumes, even if the store
// does not have them.
func (v *volumes) retain(s *instance) {
	if v.opts.Volumes != nil && len(s.body.Berth.Volumes) > 0 {
		v.opts.Volumes.Retain(s.id, s.body.Berth.Volumes)
	}
}

// open returns the mounts of a sandbox.
func (v *volumes) open(ctx context.Context, s *instance) ([]sandbox.Mount, error) {
	if len(s.body.Berth.Volumes) == 0 {
		return nil, nil
	}
	return v.opts.Volumes.Open(ctx, s.project, s.id, s.body.Berth.Volumes)
}

// link makes the links to the volumes of a sandbox whose paths are elsewhere than their mounts. A link
// replaces an existing one.
func (v *volumes) link(ctx context.Context, sn *Snapshots, s *instance) error {
	var layer bytes.Buffer
	some, err := volume.WriteLinks(&layer, s.body.Berth.Volumes, v.opts.clock.Now())
	if err != nil || !some {
		return err
	}
	return sn.apply(ctx, s, &layer)
}

// release releases the volumes of a removed sandbox.
func (v *volumes) release(s *instance) {
	if v.opts.Volumes != nil && len(s.body.Berth.Volumes) > 0 {
		v.opts.Volumes.Release(s.id)
	}
}

// expire removes expired volumes and unmounts idle ones.
func (v *volumes) expire() {
	if v.opts.Volumes == nil {
		return
	}
	if err := v.opts.Volumes.Expire(v.work.life, v.opts.clock.Now()); err != nil && v.work.life.Err() == nil {
		v.opts.Log.Error("failed to remove expired volumes; will retry", "err", err)
	}
	if err := v.opts.Volumes.Unmount(volume.IdleTime); err != nil {
		v.opts.Log.Warn("failed to unmount volumes that no container uses", "err", err)
	}
}

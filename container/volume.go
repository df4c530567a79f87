package container

import (
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

// mounts checks which volumes a container is to have.
func (v *volumes) resolve(ctx context.Context, p berth.ProjectID, c *berth.Container, want []berth.VolumeMount) (err error) {
	if len(want) == 0 {
		return nil
	}
	if v.opts.Volumes == nil || !v.opts.Driver.Features().Mounts {
		return berth.Invalid("berth.volumes", "This server's driver cannot mount volumes.")
	}
	c.Berth.Volumes, err = v.opts.Volumes.Resolve(ctx, p, want)
	return err
}

// holdVolumes keeps the volumes of a container in place as long as anything is left
// of its sandbox. It is called for each sandbox in the books, before it is made.
func (v *volumes) hold(ctx context.Context, s *instance) error {
	if len(s.body.Berth.Volumes) == 0 || v.opts.Volumes == nil {
		return nil
	}
	return v.opts.Volumes.Hold(ctx, s.project, s.id, s.body.Berth.Volumes)
}

// retainVolumes is holdVolumes for a sandbox that runs already, and uses them whatever the
// store says.
func (v *volumes) retain(s *instance) {
	if v.opts.Volumes != nil && len(s.body.Berth.Volumes) > 0 {
		v.opts.Volumes.Retain(s.id, s.body.Berth.Volumes)
	}
}

// openVolumes returns what a sandbox is to mount.
func (v *volumes) open(ctx context.Context, s *instance) ([]sandbox.Mount, error) {
	if len(s.body.Berth.Volumes) == 0 {
		return nil, nil
	}
	return v.opts.Volumes.Open(ctx, s.project, s.id, s.body.Berth.Volumes)
}

// unmounted gives the volumes of a sandbox up of which nothing is left.
func (v *volumes) release(s *instance) {
	if v.opts.Volumes != nil && len(s.body.Berth.Volumes) > 0 {
		v.opts.Volumes.Release(s.id)
	}
}

// expireVolumes removes those whose time is up.
func (v *volumes) expire() {
	if v.opts.Volumes == nil {
		return
	}
	if err := v.opts.Volumes.Expire(v.work.life, v.opts.now()); err != nil && v.work.life.Err() == nil {
		v.opts.Log.Error("expired volumes were not removed; they will be, later", "err", err)
	}
	if err := v.opts.Volumes.Unmount(volume.IdleTime); err != nil {
		v.opts.Log.Warn("failed to unmount volumes that no container uses", "err", err)
	}
}

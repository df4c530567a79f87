package container

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/sandbox"
)

// mounts checks which volumes a container is to have.
func (k *Service) mounts(ctx context.Context, p berth.ProjectID, c *berth.Container, want []berth.VolumeMount) (err error) {
	if len(want) == 0 {
		return nil
	}
	if k.opts.Volumes == nil || !k.opts.Driver.Features().Mounts {
		return berth.Invalid("berth.volumes", "This server's driver cannot mount volumes.")
	}
	c.Berth.Volumes, err = k.opts.Volumes.Resolve(ctx, p, want)
	return err
}

// holdVolumes keeps the volumes of a container in place as long as anything is left
// of its sandbox. It is called for each sandbox in the books, before it is made.
func (k *Service) holdVolumes(ctx context.Context, s *instance) error {
	if len(s.body.Berth.Volumes) == 0 || k.opts.Volumes == nil {
		return nil
	}
	return k.opts.Volumes.Hold(ctx, s.project, s.id, s.body.Berth.Volumes)
}

// retainVolumes is holdVolumes for a sandbox that runs already, and uses them whatever the
// store says.
func (k *Service) retainVolumes(s *instance) {
	if k.opts.Volumes != nil && len(s.body.Berth.Volumes) > 0 {
		k.opts.Volumes.Retain(s.id, s.body.Berth.Volumes)
	}
}

// openVolumes returns what a sandbox is to mount.
func (k *Service) openVolumes(ctx context.Context, s *instance) ([]sandbox.Mount, error) {
	if len(s.body.Berth.Volumes) == 0 {
		return nil, nil
	}
	return k.opts.Volumes.Open(ctx, s.project, s.id, s.body.Berth.Volumes)
}

// unmounted gives the volumes of a sandbox up of which nothing is left.
func (k *Service) unmounted(s *instance) {
	if k.opts.Volumes != nil && len(s.body.Berth.Volumes) > 0 {
		k.opts.Volumes.Release(s.id)
	}
}

// expireVolumes removes those whose time is up.
func (k *Service) expireVolumes() {
	if k.opts.Volumes == nil {
		return
	}
	if err := k.opts.Volumes.Expire(k.life, k.now()); err != nil && k.life.Err() == nil {
		k.opts.Log.Error("expired volumes were not removed; they will be, later", "err", err)
	}
	if err := k.opts.Volumes.Unmount(volume.IdleTime); err != nil {
		k.opts.Log.Warn("failed to unmount volumes that no container uses", "err", err)
	}
}

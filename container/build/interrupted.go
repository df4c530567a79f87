package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/store"
)

// A build is saved with the server that works on it and with its container, and is in the store's list of
// objects with a deadline until both are done. So the builds that a crash interrupted are found at the next
// start, or by another server of the cluster when the lease of the first one is gone.

// staleBuild is the time without a save after which a build fails whose record, of an earlier version, names
// no server.
const staleBuild = 30 * time.Second

// interruptedMessage tells clients that a server has not finished a build.
const interruptedMessage = "The server stopped while the template was being built. Build it again."

// never is the deadline of a build that is not over: the store lists objects with a deadline only.
const never = math.MaxInt32 * 1000

// maxInterrupted is how many builds of all projects are read from the store.
const maxInterrupted = 100_000

// retryInterrupted is how often Run looks for interrupted builds.
const retryInterrupted = time.Minute

// Run ends builds of templates that a crash interrupted, until ctx ends. Then it ends the builds of this server.
func (d *Service) Run(ctx context.Context) {
	defer d.builds.wg.Wait()
	defer d.stop(errServerStops)
	for {
		d.expireCache(ctx)
		d.endInterrupted(ctx)
		select {
		case <-ctx.Done():
			return
		case <-d.Clock.After(retryInterrupted):
		}
	}
}

// saveStarted saves that this server works on a build, which must be waiting. Errors are those of saveRunning.
func (d *Service) saveStarted(ctx context.Context, p berth.ProjectID, b *Build) error {
	return d.saveIf(ctx, p, b, func(saved *Build) bool { return saved.Status == StatusWaiting })
}

// saveRunning saves the state of a build that this server works on. It returns errBuildDeleted if there is no such
// build any more, and errBuildEnded if another server works on it, or has ended it.
func (d *Service) saveRunning(ctx context.Context, p berth.ProjectID, b *Build) error {
	return d.saveIf(ctx, p, b, func(saved *Build) bool {
		return saved.Server == b.Server && saved.Status != StatusError
	})
}

// saveIf saves a build if it is saved as expected.
func (d *Service) saveIf(ctx context.Context, p berth.ProjectID, b *Build, expected func(saved *Build) bool) error {
	_, err := d.Objects.UpdateObject(ctx, p, buildKey(b.Template, b.ID), func(o *store.Object) error {
		saved, err := decodeInto[Build](o)
		if err != nil {
			return err
		}
		if !expected(saved) {
			return errBuildEnded
		}
		return b.encode(o)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return errBuildDeleted
	case errors.Is(err, errBuildEnded):
		return errBuildEnded
	case err != nil:
		return fmt.Errorf("save build: %w", err)
	}
	return nil
}

// encode writes a build into its object.
func (b *Build) encode(o *store.Object) (err error) {
	o.ExpiresAt = 0
	if b.Status == StatusBuilding || b.Container != "" {
		o.ExpiresAt = never
	}
	if o.Body, err = json.Marshal(b); err != nil {
		return fmt.Errorf("encode build: %w", err)
	}
	return nil
}

// interrupted reports whether no server works on a build that is not in progress here.
func (d *Service) interrupted(ctx context.Context, b *Build) (bool, error) {
	switch {
	case b.Server == "":
		return d.Clock.Now().UnixMilli()-b.BeatAt > staleBuild.Milliseconds(), nil
	case b.Server == d.Server:
		return true, nil
	}
	alive, err := d.Placement.Alive(ctx, b.Server)
	if err != nil {
		return false, fmt.Errorf("find the server of a build: %w", err)
	}
	return !alive, nil
}

// interrupt makes a build one that its server has not finished.
func (b *Build) interrupt(now time.Time) {
	entry := LogEntry{rfc3339(now.UnixMilli()), "error", interruptedMessage, ""}
	b.Status, b.EndedAt = StatusError, now.UnixMilli()
	b.Reason, b.Logs = &Reason{Message: interruptedMessage, Logs: []LogEntry{entry}}, append(b.Logs, entry)
}

// endInterrupted ends the builds on which no server works any more, with their containers.
func (d *Service) endInterrupted(ctx context.Context) {
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindE2BBuild, time.Unix(never, 0).Add(time.Second), maxInterrupted)
	if err != nil && ctx.Err() == nil {
		d.Log.Error("failed to list template builds; will retry", "err", err)
	}
	for _, ref := range refs {
		if err := d.endIfInterrupted(ctx, ref); err != nil && ctx.Err() == nil {
			d.Log.Error("failed to end an interrupted template build; will retry", "build", ref.ID, "project",
				ref.Project, "err", err)
		}
	}
}

// endIfInterrupted ends a build if no server works on it, and deletes its container.
func (d *Service) endIfInterrupted(ctx context.Context, ref store.ObjectRef) error {
	o, err := d.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	b, err := decodeInto[Build](o)
	if err != nil || d.builds.find(ref.Project, b.ID) != nil {
		return err
	}
	if lost, err := d.interrupted(ctx, b); err != nil || !lost {
		return err
	}
	server := b.Server
	change := func(f func(*Build)) error {
		_, err := d.Objects.UpdateObject(ctx, ref.Project, ref.ObjectKey, func(o *store.Object) error {
			if b, err = decodeInto[Build](o); err != nil {
				return err
			}
			if b.Server != server || d.builds.find(ref.Project, b.ID) != nil {
				return nil // it has been started
			}
			f(b)
			return b.encode(o)
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("save build: %w", err)
		}
		return nil
	}
	if b.Status == StatusBuilding {
		err := change(func(b *Build) {
			if b.Status == StatusBuilding {
				b.interrupt(d.Clock.Now())
			}
		})
		if err != nil {
			return err
		}
		d.Log.Info("ended an interrupted template build", "template", b.Template, "build", b.ID, "project", ref.Project,
			"server", server)
	}
	if gone, err := d.dropContainer(ctx, ref.Project, b.Container); err != nil || !gone || b.Container == "" {
		return err
	}
	return change(func(b *Build) { b.Container = "" })
}

// dropContainer deletes the container of an interrupted build. If another server has it, gone is false: that one
// deletes it when it returns, and it ends if the server does not return.
func (d *Service) dropContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (gone bool, err error) {
	if id == "" {
		return true, nil
	}
	place, err := d.Placement.Where(ctx, cluster.Object{Project: p, Container: id}, cluster.Use)
	if err != nil || place.Server != "" {
		return false, err
	}
	if err := d.Containers.Delete(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		return false, err
	}
	return true, nil
}

// Delete deletes a template or a snapshot, with its builds. Builds that run or wait are cancelled first; another server
// of the cluster cancels its own when it finds them deleted.
func (d *Service) Delete(ctx context.Context, p berth.ProjectID, t *Template) error {
	for _, id := range t.Builds {
		if err := d.builds.end(ctx, p, id, errBuildDeleted); err != nil {
			return err
		}
	}
	for _, id := range t.Builds {
		b, err := d.Build(ctx, p, t.ID, id)
		if berth.ErrorCode(err) == berth.CodeNotFound {
			continue
		}
		if err != nil {
			return err
		}
		if b.Status == StatusError {
			if _, err := d.dropContainer(ctx, p, b.Container); err != nil {
				return err
			}
		}
		if b.Snapshot != "" {
			if err := d.Snapshots.Delete(ctx, p, b.Snapshot); err != nil &&
				berth.ErrorCode(err) != berth.CodeNotFound {
				return err
			}
		}
	}
	if err := d.Objects.DeleteObject(ctx, p, templateKey(t.ID)); err != nil &&
		!errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete template: %w", err)
	}
	return nil
}

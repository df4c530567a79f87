package e2b

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
func (d *Door) Run(ctx context.Context) {
	defer d.builds.wg.Wait()
	defer d.stop(errServerStops)
	for {
		d.expireCache(ctx)
		d.endInterrupted(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterrupted):
		}
	}
}

// saveStarted saves that this server works on a build, which must be waiting. Errors are those of saveRunning.
func (d *Door) saveStarted(ctx context.Context, p berth.ProjectID, b *build) error {
	return d.saveIf(ctx, p, b, func(saved *build) bool { return saved.Status == statusWaiting })
}

// saveRunning saves the state of a build that this server works on. It returns errBuildDeleted if there is no such
// build any more, and errBuildEnded if another server works on it, or has ended it.
func (d *Door) saveRunning(ctx context.Context, p berth.ProjectID, b *build) error {
	return d.saveIf(ctx, p, b, func(saved *build) bool {
		return saved.Server == b.Server && saved.Status != statusError
	})
}

// saveIf saves a build if it is saved as expected.
func (d *Door) saveIf(ctx context.Context, p berth.ProjectID, b *build, expected func(saved *build) bool) error {
	_, err := d.Objects.UpdateObject(ctx, p, buildKey(b.Template, b.ID), func(o *store.Object) error {
		saved, err := decodeInto[build](o)
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
func (b *build) encode(o *store.Object) (err error) {
	o.ExpiresAt = 0
	if b.Status == statusBuilding || b.Container != "" {
		o.ExpiresAt = never
	}
	if o.Body, err = json.Marshal(b); err != nil {
		return fmt.Errorf("encode build: %w", err)
	}
	return nil
}

// interrupted reports whether no server works on a build that is not in progress here.
func (d *Door) interrupted(ctx context.Context, b *build) (bool, error) {
	switch {
	case b.Server == "":
		return d.Now().UnixMilli()-b.BeatAt > staleBuild.Milliseconds(), nil
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
func (b *build) interrupt(now time.Time) {
	entry := logEntry{rfc3339(now.UnixMilli()), "error", interruptedMessage, ""}
	b.Status, b.EndedAt = statusError, now.UnixMilli()
	b.Reason, b.Logs = &reason{Message: interruptedMessage, Logs: []logEntry{entry}}, append(b.Logs, entry)
}

// endInterrupted ends the builds on which no server works any more, with their containers.
func (d *Door) endInterrupted(ctx context.Context) {
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
func (d *Door) endIfInterrupted(ctx context.Context, ref store.ObjectRef) error {
	o, err := d.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	b, err := decodeInto[build](o)
	if err != nil || d.builds.find(ref.Project, b.ID) != nil {
		return err
	}
	if lost, err := d.interrupted(ctx, b); err != nil || !lost {
		return err
	}
	server := b.Server
	change := func(f func(*build)) error {
		_, err := d.Objects.UpdateObject(ctx, ref.Project, ref.ObjectKey, func(o *store.Object) error {
			if b, err = decodeInto[build](o); err != nil {
				return err
			}
			if b.Server != server || d.builds.find(ref.Project, b.ID) != nil {
				return nil // it was started meanwhile
			}
			f(b)
			return b.encode(o)
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("save build: %w", err)
		}
		return nil
	}
	if b.Status == statusBuilding {
		err := change(func(b *build) {
			if b.Status == statusBuilding {
				b.interrupt(d.Now())
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
	return change(func(b *build) { b.Container = "" })
}

// dropContainer deletes the container of an interrupted build. If another server has it, gone is false: that one
// deletes it when it returns, and it ends if the server does not return.
func (d *Door) dropContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (gone bool, err error) {
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

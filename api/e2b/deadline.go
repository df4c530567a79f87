package e2b

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
)

// reload is how often Run reads the sandboxes of other servers, and tries again what failed.
const reload = time.Minute

// Run ends or pauses sandboxes at their deadlines, and ends builds of templates that a crash interrupted, until
// ctx ends. Then it ends the builds of this server.
func (d *Door) Run(ctx context.Context) {
	defer d.builds.wg.Wait()
	defer d.stop(errServerStops)
	for {
		if err := d.load(ctx); err != nil && ctx.Err() == nil {
			d.Log.Error("failed to read sandboxes; will retry", "err", err)
		}
		d.sweep(ctx)
		d.expireCache(ctx)
		d.expireEvents(ctx)
		d.endInterrupted(ctx)
		for again := time.After(reload); again != nil; {
			d.forgetEnded(ctx)
			next := d.endDue(ctx)
			timer := time.NewTimer(next)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-again:
				again = nil
			case <-timer.C:
			case <-d.changed:
			}
			timer.Stop()
		}
	}
}

// containerEnded notes that a container has ended, for Run.
func (d *Door) containerEnded(p berth.ProjectID, id berth.ContainerID) {
	d.mu.Lock()
	_, ours := d.live[id]
	if ours {
		d.ended[id] = p
	}
	d.mu.Unlock()
	if ours {
		d.wake()
	}
}

// forgetEnded deletes the records of sandboxes whose containers have ended on this server.
func (d *Door) forgetEnded(ctx context.Context) {
	d.mu.Lock()
	ended := d.ended
	d.ended = map[berth.ContainerID]berth.ProjectID{}
	d.mu.Unlock()
	d.readAll(ctx, ended)
}

// sweep deletes the records of sandboxes whose containers have ended, on any server.
func (d *Door) sweep(ctx context.Context) {
	all := map[berth.ContainerID]berth.ProjectID{}
	d.mu.Lock()
	for id, s := range d.live {
		all[id] = s.project
	}
	d.mu.Unlock()
	d.readAll(ctx, all)
}

// readAll reads sandboxes, so that those whose containers have ended are deleted.
func (d *Door) readAll(ctx context.Context, all map[berth.ContainerID]berth.ProjectID) {
	for id, p := range all {
		if _, _, err := d.readStored(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound &&
			ctx.Err() == nil {
			d.Log.Error("failed to read a sandbox; will retry", "container", id, "project", p, "err", err)
		}
	}
}

// endDue ends what is due, and returns the time until the next deadline.
func (d *Door) endDue(ctx context.Context) time.Duration {
	now := d.Now()
	next := reload
	due := map[berth.ContainerID]live{}
	d.mu.Lock()
	for id, s := range d.live {
		if left := time.Unix(s.deadline, 0).Sub(now); left > 0 {
			next = min(next, left)
		} else {
			due[id] = s
			delete(d.live, id) // the next reload finds it if its end fails
		}
	}
	d.mu.Unlock()
	for id, s := range due {
		if err := d.timeOut(ctx, s.project, id, now); err != nil && ctx.Err() == nil {
			d.Log.Error("failed to end a sandbox at its deadline; will retry", "container", id, "project", s.project,
				"err", err)
		}
	}
	return next
}

// timeOut ends or pauses a sandbox whose deadline has passed, unless another request has set a later
// one.
func (d *Door) timeOut(ctx context.Context, p berth.ProjectID, id berth.ContainerID, now time.Time) error {
	place, err := d.Placement.Where(ctx, cluster.Object{Project: p, Container: id}, cluster.Use)
	if err != nil || place.Server != "" {
		return err // that server ends it
	}
	rec, _, err := d.readStored(ctx, p, id)
	switch {
	case berth.ErrorCode(err) == berth.CodeNotFound:
		return nil
	case err != nil:
		return err
	case rec.deadline > now.Unix():
		d.watch(p, id, rec)
		return nil
	case rec.OnTimeout == onTimeoutPause:
		err := d.pauseNow(ctx, p, id)
		if berth.ErrorCode(err) != berth.CodeConflict {
			return err
		}
		// A call of a response runs in it.
		_, err = d.update(ctx, p, id, func(rec *record) error { rec.deadline = now.Unix() + 5; return nil })
		return err
	}
	return d.end(ctx, p, id)
}

// end deletes a sandbox with its container, which another server may have.
func (d *Door) end(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	if err := d.Remove(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		return err
	}
	return d.forget(ctx, p, id)
}

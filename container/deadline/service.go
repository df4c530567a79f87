// Package deadline gives containers a deadline, at which they end or are paused, and a history of events. A container
// with a deadline is a sandbox.
//
// The record of a sandbox is an object in the store, which expires at the deadline. It also has what the sandbox's
// client has set, and the events that are not saved on their own yet (event.go). A server caches what it needs for
// each request (cache.go); the record is what counts.
package deadline

import (
	"context"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/internal/clock"
)

// A Service keeps sandboxes. It is safe for concurrent use.
type Service struct {
	*Records

	mu    sync.Mutex
	ended map[berth.ContainerID]berth.ProjectID // sandboxes whose containers have ended
}

// New returns a Service. Run must run for sandboxes to end at their deadlines.
func New(opts Options) *Service {
	if opts.Placement == nil {
		opts.Placement = cluster.Solo{}
	}
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	if opts.Remove == nil {
		opts.Remove = opts.Containers.Delete
	}
	events := &Events{&opts}
	d := &Service{Records: &Records{Options: &opts, Events: events, Cache: newCache(&opts, events)},
		ended: map[berth.ContainerID]berth.ProjectID{}}
	opts.Containers.OnEnded(d.containerEnded)
	return d
}

// Run ends or pauses sandboxes at their deadlines, until ctx ends.
func (d *Service) Run(ctx context.Context) {
	for {
		if err := d.load(ctx); err != nil && ctx.Err() == nil {
			d.Log.Error("failed to read sandboxes; will retry", "err", err)
		}
		d.sweep(ctx)
		d.expireEvents(ctx)
		for again := d.Clock.After(reload); again != nil; {
			d.forgetEnded(ctx)
			due := d.Clock.AfterFunc(d.endDue(ctx), d.wake)
			select {
			case <-ctx.Done():
				due.Stop()
				return
			case <-again:
				again = nil
			case <-d.changed:
			}
			due.Stop()
		}
	}
}

// containerEnded notes that a container has ended, for Run.
func (d *Service) containerEnded(p berth.ProjectID, id berth.ContainerID) {
	if _, ours, _ := d.known(id); !ours {
		return
	}
	d.mu.Lock()
	d.ended[id] = p
	d.mu.Unlock()
	d.wake()
}

// forgetEnded deletes the records of sandboxes whose containers have ended on this server.
func (d *Service) forgetEnded(ctx context.Context) {
	d.mu.Lock()
	ended := d.ended
	d.ended = map[berth.ContainerID]berth.ProjectID{}
	d.mu.Unlock()
	d.readAll(ctx, ended)
}

// sweep deletes the records of sandboxes whose containers have ended, on any server.
func (d *Service) sweep(ctx context.Context) {
	all := map[berth.ContainerID]berth.ProjectID{}
	for id, s := range d.All() {
		all[id] = s.Project
	}
	d.readAll(ctx, all)
}

// readAll reads sandboxes, so that those whose containers have ended are deleted.
func (d *Service) readAll(ctx context.Context, all map[berth.ContainerID]berth.ProjectID) {
	for id, p := range all {
		if _, _, err := d.readStored(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound &&
			ctx.Err() == nil {
			d.Log.Error("failed to read a sandbox; will retry", "container", id, "project", p, "err", err)
		}
	}
}

// endDue ends the sandboxes that are due, and returns the time until the next deadline.
func (d *Service) endDue(ctx context.Context) time.Duration {
	now := d.Clock.Now()
	due, next := d.takeDue(now)
	for id, s := range due {
		if err := d.timeOut(ctx, s.Project, id, now); err != nil && ctx.Err() == nil {
			d.Log.Error("failed to end a sandbox at its deadline; will retry", "container", id, "project", s.Project,
				"err", err)
		}
	}
	return next
}

// timeOut ends or pauses a sandbox whose deadline has passed, unless another request has set a later
// one.
func (d *Service) timeOut(ctx context.Context, p berth.ProjectID, id berth.ContainerID, now time.Time) error {
	place, err := d.Placement.Where(ctx, cluster.Object{Project: p, Container: id}, cluster.Use)
	if err != nil || place.Server != "" {
		return err // that server ends it
	}
	done, err := d.Turn(ctx, id) // a client that resumes the sandbox may set a later deadline
	if err != nil {
		return err
	}
	defer done()
	rec, _, err := d.readStored(ctx, p, id)
	switch {
	case berth.ErrorCode(err) == berth.CodeNotFound:
		return nil
	case err != nil:
		return err
	case rec.Deadline > now.Unix():
		d.watch(p, id, rec)
		return nil
	case rec.OnTimeout == OnTimeoutPause:
		err := d.Pause(ctx, p, id, rec.KeepAtTimeout)
		if berth.ErrorCode(err) != berth.CodeConflict {
			return err
		}
		// A call of a response runs in it.
		_, err = d.Update(ctx, p, id, func(rec *Record) error { rec.Deadline = now.Unix() + 5; return nil })
		return err
	}
	err = d.End(ctx, p, id)
	if berth.ErrorCode(err) == berth.CodeConflict { // a hold: its files remain
		err = d.Pause(ctx, p, id, FilesOnly)
	}
	return err
}

// End deletes a sandbox with its container, which another server may have.
func (d *Service) End(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	if err := d.Remove(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		return err
	}
	return d.forget(ctx, p, id)
}

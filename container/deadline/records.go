package deadline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Records keeps the records of sandboxes, with their events and the cache.
type Records struct {
	*Options
	*Events
	*Cache
	connections connections
	turns       turns
}

// Create saves the record of a new sandbox with the event of its creation. made is its container.
func (d *Records) Create(ctx context.Context, p berth.ProjectID, made *berth.Container, rec *Record) error {
	id := made.ID
	rec.Events, rec.Outbox, rec.Executions, rec.ExecutedAt, rec.MemoryMB = 0, nil, 0, rec.StartedAt,
		berth.MemoryLimits[made.MemoryLimit]>>20
	if rec.Build == "" {
		rec.Build = made.Berth.Template
	}
	created := *d.emit(p, id, rec, berth.EventSandboxCreated, nil)
	rec.Outbox = nil
	body, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode sandbox: %w", err)
	}
	object := &store.Object{ObjectKey: keyOf(id), CreatedAt: rec.StartedAt / 1000, ExpiresAt: rec.Deadline, Body: body}
	if err := d.saveEvent(ctx, p, &created, object); err != nil {
		return fmt.Errorf("save sandbox: %w", err)
	}
	d.watch(p, id, rec)
	return nil
}

// Read returns a sandbox with its container, unless it is over.
func (d *Records) Read(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*Record, *berth.Container,
	error) {
	rec, c, err := d.readStored(ctx, p, id)
	if err == nil && rec.Over(d.Clock.Now()) {
		return nil, nil, notFound(id)
	}
	return rec, c, err
}

// readStored returns a sandbox whose container runs, and its container. A sandbox whose container has
// ended is gone: readStored deletes its record.
func (d *Records) readStored(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*Record, *berth.Container,
	error) {
	o, err := d.Objects.GetObject(ctx, p, keyOf(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, notFound(id)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read sandbox: %w", err)
	}
	rec, err := decode(o)
	if err != nil {
		return nil, nil, err
	}
	c, err := d.Container(ctx, p, id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		if err := d.forget(ctx, p, id); err != nil {
			return nil, nil, err
		}
	}
	return rec, c, err
}

// A Listed is a sandbox of a list.
type Listed struct {
	ID berth.ContainerID
	*Record
}

// List returns a page of a project's sandboxes. Those that are over, or whose containers have ended, may be in it.
func (d *Records) List(ctx context.Context, p berth.ProjectID, page store.Page) (list []Listed, more bool, err error) {
	objects, more, err := d.Objects.ListObjects(ctx, p, store.KindSandbox, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, o := range objects {
		rec, err := decode(o)
		if err != nil {
			return nil, false, err
		}
		list = append(list, Listed{berth.ContainerID(o.ID), rec})
	}
	return list, more, nil
}

// Container returns the container of a sandbox, which must run.
func (d *Records) Container(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	c, err := d.Containers.Get(ctx, p, id)
	if berth.ErrorCode(err) == berth.CodeNotFound || err == nil && c.Status != berth.ContainerRunning {
		return nil, notFound(id)
	}
	return c, err
}

// Update changes the record of a sandbox, and saves the events that change has emitted.
func (d *Records) Update(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	change func(*Record) error) (*Record, error) {
	var rec *Record
	_, err := d.Objects.UpdateObject(ctx, p, keyOf(id), func(o *store.Object) (err error) {
		if rec, err = decode(o); err != nil {
			return err
		}
		if err = change(rec); err != nil {
			return err
		}
		o.ExpiresAt = rec.Deadline
		o.Body, err = json.Marshal(rec)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("save sandbox: %w", err)
	}
	d.watch(p, id, rec)
	d.publish(context.WithoutCancel(ctx), p, id, rec)
	return rec, nil
}

// forget deletes the record of a sandbox whose container has ended, after it has saved the event of the end. After a
// crash in between, the next call does the rest.
func (d *Records) forget(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	d.drop(id)
	o, err := d.Objects.GetObject(ctx, p, keyOf(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read sandbox: %w", err)
	}
	rec, err := decode(o)
	if err != nil {
		return err
	}
	if err := d.saveLast(ctx, p, id, rec); err != nil {
		return err
	}
	if err := d.Objects.DeleteObject(ctx, p, keyOf(id)); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete sandbox: %w", err)
	}
	return nil
}

// SetDeadline sets the deadline of a sandbox.
func (d *Records) SetDeadline(p berth.ProjectID, id berth.ContainerID, rec *Record, deadline int64) {
	rec.Deadline = deadline
	d.emit(p, id, rec, berth.EventSandboxUpdated, func(data *berth.SandboxEventData) {
		data.SetTimeout = time.Unix(deadline, 0).UTC().Format(time.RFC3339)
	})
}

// SetResumed records that a paused sandbox was resumed.
func (d *Records) SetResumed(p berth.ProjectID, id berth.ContainerID, rec *Record, deadline int64) {
	if rec.FilesOnly {
		rec.FilesOnly, rec.Contexts = false, nil
	}
	rec.Paused, rec.Deadline, rec.ExecutedAt = false, deadline, d.Clock.Now().UnixMilli()
	rec.Executions++
	d.emit(p, id, rec, berth.EventSandboxResumed, nil)
}

// During makes a change that is not part of the record of a sandbox, with its event. The event is in the record
// before the change, so that a crash does not lose it.
func (d *Records) During(ctx context.Context, p berth.ProjectID, id berth.ContainerID, kind berth.EventType,
	change func() error) error {
	var number int
	_, err := d.Update(ctx, p, id, func(rec *Record) error {
		e := d.emit(p, id, rec, kind, nil)
		e.Intent, number = true, e.Number
		return nil
	})
	if err != nil {
		return err
	}
	failed := change()
	_, err = d.Update(context.WithoutCancel(ctx), p, id, func(rec *Record) error {
		i := slices.IndexFunc(rec.Outbox, func(e event) bool { return e.Number == number })
		switch {
		case i < 0:
		case failed != nil:
			rec.Outbox = slices.Delete(rec.Outbox, i, i+1)
		default:
			e := &rec.Outbox[i]
			e.Intent, e.At = false, d.Clock.Now().UnixMilli()
			e.Timestamp = rfc3339(e.At)
		}
		return nil
	})
	if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		d.Log.Error("failed to save an event of a sandbox; will retry", "container", id, "project", p, "type", kind,
			"err", err)
	}
	return failed
}

// Connect adds a request that uses a sandbox until done is called. The context that it returns ends when the sandbox
// is paused.
func (d *Records) Connect(ctx context.Context, id berth.ContainerID) (_ context.Context, done func()) {
	return d.connections.add(ctx, id)
}

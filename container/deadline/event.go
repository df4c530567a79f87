package deadline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// An event is saved twice. It is first part of the record of its sandbox, in the write that changes the sandbox, so
// that a crash loses neither without the other. Then it becomes an object of its own, together with its deliveries to
// webhooks, and leaves the record. What a crash leaves in a record, the next load saves. Its number makes the id of the
// object, so it is saved once.

const (
	eventLife        = 7 * 24 * time.Hour
	maxEvents        = 1000             // of one sandbox; older ones are deleted
	maxEventMetadata = 16 << 10         // bytes of the metadata of a sandbox in an event, which omits larger ones
	intentTimeout    = 10 * time.Minute // after which a change counts as made by a server that has crashed
	expireBatch      = 1000             // events that expireEvents deletes at a time
)

// Events are the events of sandboxes.
type Events struct{ *Options }

// An event is a berth.SandboxEvent as it is stored.
type event struct {
	berth.SandboxEvent
	Number int   `json:"number"`           // of the sandbox, from 0
	At     int64 `json:"at"`               // Unix milliseconds
	Intent bool  `json:"intent,omitempty"` // the change is about to be made
}

// lastEvent is used in place of the number of the event of the end in an id: a sandbox ends once, however often
// that is found.
const lastEvent = "end"

func eventID(id berth.ContainerID, number string) string {
	return berth.UUID("e2b event\x00" + string(id) + "\x00" + number)
}

func eventKey(id string) store.ObjectKey { return store.ObjectKey{Kind: store.KindE2BEvent, ID: id} }

// emit adds an event to a record that is being changed, and returns it. fill may be nil.
func (d *Events) emit(p berth.ProjectID, id berth.ContainerID, rec *Record, kind berth.EventType,
	fill func(*berth.SandboxEventData)) *event {
	now := d.Clock.Now()
	number := strconv.Itoa(rec.Events)
	if kind == berth.EventSandboxKilled {
		number = lastEvent
	}
	e := event{SandboxEvent: berth.NewSandboxEvent(eventID(id, number), kind), Number: rec.Events, At: now.UnixMilli()}
	e.Timestamp, e.SandboxID, e.TeamID, e.TemplateID, e.BuildID = rfc3339(e.At), Name(id), p, rec.Template, rec.Build
	e.ExecutionID = berth.UUID("e2b execution\x00" + string(id) + "\x00" + strconv.Itoa(rec.Executions))
	data := &berth.SandboxEventData{}
	size := 0
	for name, value := range rec.Metadata {
		size += len(name) + len(value)
	}
	if size <= maxEventMetadata {
		data.Metadata = rec.Metadata
	}
	if ends := kind == berth.EventSandboxPaused || kind == berth.EventSandboxKilled; ends && !rec.Paused &&
		rec.ExecutedAt > 0 {
		data.Execution = &berth.SandboxExecution{StartedAt: rfc3339(rec.ExecutedAt), CPUCount: max(1, int(d.CPU)),
			MemoryMB: rec.MemoryMB, Time: max(0, e.At-rec.ExecutedAt)}
	}
	if fill != nil {
		fill(data)
	}
	if len(data.Metadata) > 0 || data.Execution != nil || data.SetTimeout != "" {
		e.Data = data
	}
	rec.Events++
	rec.Outbox = append(rec.Outbox, e)
	return &rec.Outbox[len(rec.Outbox)-1]
}

// publish saves the events in a record as objects of their own. If that fails, the next load tries again.
func (d *Events) publish(ctx context.Context, p berth.ProjectID, id berth.ContainerID, rec *Record) {
	if err := d.saveOutbox(ctx, p, id, rec); err != nil && ctx.Err() == nil {
		d.Log.Error("failed to save the events of a sandbox; will retry", "container", id, "project", p, "err", err)
	}
}

func (d *Events) saveOutbox(ctx context.Context, p berth.ProjectID, id berth.ContainerID, rec *Record) error {
	saved := map[int]bool{}
	for i := range rec.Outbox {
		e := &rec.Outbox[i]
		if e.Intent && d.Clock.Now().Sub(time.UnixMilli(e.At)) < intentTimeout {
			continue
		}
		if err := d.saveEvent(ctx, p, e); err != nil {
			return err
		}
		saved[e.Number] = true
		if e.Number < maxEvents {
			continue
		}
		old := eventKey(eventID(id, strconv.Itoa(e.Number-maxEvents)))
		if err := d.Objects.DeleteObject(ctx, p, old); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("delete event: %w", err)
		}
	}
	if len(saved) == 0 {
		return nil
	}
	_, err := d.Objects.UpdateObject(ctx, p, keyOf(id), func(o *store.Object) error {
		rec, err := decode(o)
		if err != nil {
			return err
		}
		rec.Outbox = slices.DeleteFunc(rec.Outbox, func(e event) bool { return saved[e.Number] })
		o.Body, err = json.Marshal(rec)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("save sandbox: %w", err)
	}
	return nil
}

// saveLast saves the events in the record of a sandbox that has ended, and the event of its end.
func (d *Events) saveLast(ctx context.Context, p berth.ProjectID, id berth.ContainerID, rec *Record) error {
	if err := d.saveOutbox(ctx, p, id, rec); err != nil {
		return err
	}
	return d.saveEvent(ctx, p, d.emit(p, id, rec, berth.EventSandboxKilled, nil))
}

// maxSaveTries is how often the deliveries of an event are determined again because a webhook was deleted before
// they were saved.
const maxSaveTries = 5

// saveEvent saves an event with its deliveries and other objects, in one transaction. It does nothing if the event is
// saved already.
func (d *Events) saveEvent(ctx context.Context, p berth.ProjectID, e *event, also ...*store.Object) error {
	saved := *e
	saved.Intent = false
	body, err := json.Marshal(saved)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	object := &store.Object{ObjectKey: eventKey(e.ID), CreatedAt: e.At / 1000, ExpiresAt: e.At/1000 +
		int64(eventLife/time.Second), Body: body}
	for try := 1; ; try++ {
		objects := append(slices.Clone(also), object)
		if d.Deliveries != nil {
			deliveries, err := d.Deliveries.SandboxEvent(ctx, p, &e.SandboxEvent)
			if err != nil {
				return err
			}
			objects = append(objects, deliveries...)
		}
		err := d.Objects.CreateObjects(ctx, p, objects...)
		switch {
		case errors.Is(err, store.ErrExists) && len(also) == 0:
			return nil
		case errors.Is(err, store.ErrNotFound) && try < maxSaveTries:
			continue
		case err != nil:
			return fmt.Errorf("save event: %w", err)
		}
		return nil
	}
}

// expireEvents deletes the events of all projects that have expired.
func (d *Events) expireEvents(ctx context.Context) {
	for {
		refs, err := d.Objects.ExpiredObjects(ctx, store.KindE2BEvent, d.Clock.Now(), expireBatch)
		for _, ref := range refs {
			if err == nil {
				err = d.Objects.DeleteObject(ctx, ref.Project, ref.ObjectKey)
			}
			if errors.Is(err, store.ErrNotFound) { // another server has deleted it
				err = nil
			}
		}
		if err != nil && ctx.Err() == nil {
			d.Log.Error("failed to delete expired events of sandboxes; will retry", "err", err)
		}
		if err != nil || len(refs) < expireBatch {
			return
		}
	}
}

// rfc3339 formats Unix milliseconds.
func rfc3339(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

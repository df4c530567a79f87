package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// never is the deadline of a paused sandbox. The store lists objects with a deadline only.
const never = math.MaxInt32 * 1000

// A record is what a sandbox has beside its container. Its object expires at the deadline.
type record struct {
	Template   string            `json:"template"`
	Alias      string            `json:"alias,omitempty"`   // the name of the template
	Timeout    int64             `json:"timeout,omitempty"` // seconds, of the request that created it
	Metadata   map[string]string `json:"metadata,omitempty"`
	StartedAt  int64             `json:"started_at"` // Unix milliseconds
	OnTimeout  string            `json:"on_timeout"` // kill or pause
	AutoResume bool              `json:"auto_resume,omitempty"`
	Paused     bool              `json:"paused,omitempty"`
	Contexts   []codeContext     `json:"contexts,omitempty"` // of the code interpreter
	Ports      ports             `json:"ports,omitzero"`
	Outward    outward           `json:"outward,omitzero"`

	Events     int     `json:"events,omitempty"`      // number of its events so far
	Outbox     []event `json:"outbox,omitempty"`      // events that are not saved on their own yet
	Executions int     `json:"executions,omitempty"`  // number of its pauses that have ended
	ExecutedAt int64   `json:"executed_at,omitempty"` // when it was created or last resumed, in Unix milliseconds
	MemoryMB   int64   `json:"memory_mb,omitempty"`

	// Of its template:
	Build string   `json:"build,omitempty"` // a build, or the digest of a template of the server
	User  string   `json:"user,omitempty"`
	Dir   string   `json:"dir,omitempty"`
	Env   []string `json:"env,omitempty"` // NAME=value

	deadline int64 // Unix seconds
}

// live returns what is cached of a record.
func (rec *record) live(p berth.ProjectID, at time.Time) live {
	return live{project: p, deadline: rec.deadline, at: at, ports: rec.Ports, user: rec.User, dir: rec.Dir}
}

func keyOf(id berth.ContainerID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSandbox, ID: string(id)}
}

func decode(o *store.Object) (*record, error) {
	rec := &record{deadline: o.ExpiresAt}
	if err := json.Unmarshal(o.Body, rec); err != nil {
		return nil, fmt.Errorf("decode sandbox %s: %w", o.ID, err)
	}
	return rec, nil
}

// save saves the record of a new sandbox with the event of its creation. made is its container.
func (d *Door) save(ctx context.Context, p berth.ProjectID, made *berth.Container, rec *record) error {
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
	object := &store.Object{ObjectKey: keyOf(id), CreatedAt: rec.StartedAt / 1000, ExpiresAt: rec.deadline, Body: body}
	if err := d.saveEvent(ctx, p, &created, object); err != nil {
		return fmt.Errorf("save sandbox: %w", err)
	}
	d.watch(p, id, rec)
	return nil
}

// over reports whether a sandbox is past a deadline that kills it. Its end may not be saved yet, but its clients see
// it as ended everywhere at once.
func (rec *record) over(now time.Time) bool {
	return rec.deadline <= now.Unix() && rec.OnTimeout != onTimeoutPause
}

// read returns a sandbox with its container, unless it is over.
func (d *Door) read(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*record, *berth.Container, error) {
	rec, c, err := d.readStored(ctx, p, id)
	if err == nil && rec.over(d.Now()) {
		return nil, nil, notFound(id)
	}
	return rec, c, err
}

// readStored returns a sandbox whose container runs, and its container. A sandbox whose container has
// ended is gone: readStored deletes its record.
func (d *Door) readStored(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*record, *berth.Container,
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
	c, err := d.container(ctx, p, id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		if err := d.forget(ctx, p, id); err != nil {
			return nil, nil, err
		}
	}
	return rec, c, err
}

// container returns the container of a sandbox, which must run.
func (d *Door) container(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	c, err := d.Containers.Get(ctx, p, id)
	if berth.ErrorCode(err) == berth.CodeNotFound || err == nil && c.Status != berth.ContainerRunning {
		return nil, notFound(id)
	}
	return c, err
}

// update changes the record of a sandbox, and saves the events that change has emitted.
func (d *Door) update(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	change func(*record) error) (*record, error) {
	var rec *record
	_, err := d.Objects.UpdateObject(ctx, p, keyOf(id), func(o *store.Object) (err error) {
		if rec, err = decode(o); err != nil {
			return err
		}
		if err = change(rec); err != nil {
			return err
		}
		o.ExpiresAt = rec.deadline
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
func (d *Door) forget(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	d.mu.Lock()
	delete(d.live, id)
	d.mu.Unlock()
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

// watch caches what the data plane and the deadlines need of a sandbox.
func (d *Door) watch(p berth.ProjectID, id berth.ContainerID, rec *record) {
	d.mu.Lock()
	d.live[id] = rec.live(p, d.Now())
	d.mu.Unlock()
	d.wake()
}

// wake makes Run look for what is due.
func (d *Door) wake() {
	select {
	case d.changed <- struct{}{}:
	default: // Run has not read the last change yet
	}
}

// most is how many sandboxes of all projects are read from the store.
const most = 100_000

// load reads all sandboxes from the store.
func (d *Door) load(ctx context.Context) error {
	began := d.Now()
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindSandbox, time.Unix(never, 0).Add(time.Second), most)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	all := make(map[berth.ContainerID]live, len(refs))
	for _, ref := range refs {
		id := berth.ContainerID(ref.ID)
		o, err := d.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read sandbox: %w", err)
		}
		rec, err := decode(o)
		if err != nil {
			return err
		}
		all[id] = rec.live(ref.Project, began)
		d.publish(ctx, ref.Project, id, rec) // what a crash or a failure has left
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.live {
		if s.at.After(began) {
			all[id] = s // it was set while the store was read
		}
	}
	d.live, d.loaded = all, d.Now()
	return nil
}

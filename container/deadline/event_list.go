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

// EventLife is how long events are kept.
const EventLife = eventLife

// An EventQuery is the part of a list of events that a client requests.
type EventQuery struct {
	Offset, Limit int64
	Ascending     bool
	Types         []string // empty: all
}

// An eventPage is what was found for a query so far.
type eventPage struct {
	EventQuery
	after int64 // Unix milliseconds; events before it have expired
	found []berth.SandboxEvent
}

func (d *Events) newPage(q EventQuery) *eventPage {
	return &eventPage{EventQuery: q, after: d.Clock.Now().Add(-eventLife).UnixMilli()}
}

// add adds the next event of the list if it is in the page, and reports whether the page is full.
func (page *eventPage) add(o *store.Object) (full bool, err error) {
	var e event
	if err := json.Unmarshal(o.Body, &e); err != nil {
		return false, fmt.Errorf("decode event %s: %w", o.ID, err)
	}
	switch {
	case e.At <= page.after || len(page.Types) > 0 && !slices.Contains(page.Types, string(e.Type)):
	case page.Offset > 0:
		page.Offset--
	default:
		page.found = append(page.found, e.SandboxEvent)
	}
	return int64(len(page.found)) == page.Limit, nil
}

// ListEvents returns events of all sandboxes of a project, the newest first unless the query says otherwise.
func (d *Events) ListEvents(ctx context.Context, p berth.ProjectID, q EventQuery) ([]berth.SandboxEvent, error) {
	for again := true; ; again = false {
		page := d.newPage(q)
		err := d.scan(ctx, p, page)
		// the last event of a part expired before the next part was read
		if errors.Is(err, store.ErrNotFound) && again {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list events: %w", err)
		}
		return page.found, nil
	}
}

// scan reads the events of a project until the page is full.
func (d *Events) scan(ctx context.Context, p berth.ProjectID, page *eventPage) error {
	from := store.Page{Limit: maxEvents, Ascending: page.Ascending, Bytes: 8 << 20}
	for {
		objects, more, err := d.Objects.ListObjects(ctx, p, store.KindE2BEvent, "", from)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if full, err := page.add(o); full || err != nil {
				return err
			}
			from.After = o.ID
		}
		if !more {
			return nil
		}
	}
}

// ListEventsOf returns events of a sandbox, which may have ended, the newest first unless the query says otherwise.
func (d *Events) ListEventsOf(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	q EventQuery) ([]berth.SandboxEvent, error) {
	page := d.newPage(q)
	ids, err := d.eventIDs(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if !page.Ascending {
		slices.Reverse(ids)
	}
	for _, one := range ids {
		o, err := d.Objects.GetObject(ctx, p, eventKey(one))
		if errors.Is(err, store.ErrNotFound) {
			continue // it has expired, or its change was not made
		}
		if err != nil {
			return nil, fmt.Errorf("read event: %w", err)
		}
		full, err := page.add(o)
		if err != nil {
			return nil, err
		}
		if full {
			break
		}
	}
	return page.found, nil
}

// eventIDs returns the ids that events of a sandbox have, the oldest first. It returns an error if the project has no
// such sandbox, or it ended longer ago than eventLife.
func (d *Events) eventIDs(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]string, error) {
	last := eventID(id, lastEvent)
	count := 0
	if o, err := d.Objects.GetObject(ctx, p, keyOf(id)); err == nil {
		rec, err := decode(o)
		if err != nil {
			return nil, err
		}
		count = rec.Events
	} else if !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("read sandbox: %w", err)
	} else {
		o, err := d.Objects.GetObject(ctx, p, eventKey(last))
		if errors.Is(err, store.ErrNotFound) {
			return nil, notFound(id)
		}
		if err != nil {
			return nil, fmt.Errorf("read event: %w", err)
		}
		var e event
		if err := json.Unmarshal(o.Body, &e); err != nil {
			return nil, fmt.Errorf("decode event %s: %w", o.ID, err)
		}
		if d.Clock.Now().Sub(time.UnixMilli(e.At)) > eventLife {
			return nil, notFound(id)
		}
		count = e.Number
	}
	var ids []string
	for i := max(0, count-maxEvents); i < count; i++ {
		ids = append(ids, eventID(id, strconv.Itoa(i)))
	}
	return append(ids, last), nil
}

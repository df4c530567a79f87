package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/webhook"
)

// A listedEvent is a berth.SandboxEvent with the names of lists.
type listedEvent struct {
	ID          string                  `json:"id"`
	Version     string                  `json:"version"`
	Type        berth.EventType         `json:"type"`
	Timestamp   string                  `json:"timestamp"`
	Category    string                  `json:"eventCategory"`
	Label       string                  `json:"eventLabel"`
	Data        *berth.SandboxEventData `json:"eventData"`
	SandboxID   string                  `json:"sandboxId"`
	ExecutionID string                  `json:"sandboxExecutionId"`
	TemplateID  string                  `json:"sandboxTemplateId"`
	BuildID     string                  `json:"sandboxBuildId"`
	TeamID      berth.ProjectID         `json:"sandboxTeamId"`
}

// An eventPage is the part of a list of events that a client requests.
type eventPage struct {
	offset, limit int64
	ascending     bool
	types         []string // empty: all
	after         int64    // Unix milliseconds; events before it have expired

	found []listedEvent
}

// eventPageOf reads the parameters of a list of events.
func (d *Door) eventPageOf(r *http.Request) (*eventPage, error) {
	q := exchange.NewQuery(r)
	known := make([]string, len(webhook.SandboxEventTypes))
	for i, t := range webhook.SandboxEventTypes {
		known[i] = string(t)
	}
	page := &eventPage{offset: q.Integer("offset", 0, 0, math.MaxInt32), limit: q.Integer("limit", 10, 1, 100),
		ascending: q.Boolean("orderAsc", false),
		types:     q.List("types", known), after: d.Now().Add(-eventLife).UnixMilli(), found: []listedEvent{}}
	return page, q.End()
}

// add adds the next event of the list if it is in the page, and reports whether the page is full.
func (page *eventPage) add(o *store.Object) (full bool, err error) {
	var e event
	if err := json.Unmarshal(o.Body, &e); err != nil {
		return false, fmt.Errorf("decode event %s: %w", o.ID, err)
	}
	switch {
	case e.At <= page.after || len(page.types) > 0 && !slices.Contains(page.types, string(e.Type)):
	case page.offset > 0:
		page.offset--
	default:
		page.found = append(page.found, listedEvent(e.SandboxEvent))
	}
	return int64(len(page.found)) == page.limit, nil
}

// listEvents serves GET /events/sandboxes: the events of all sandboxes of the project, the newest first.
func (d *Door) listEvents(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	for again := true; ; again = false {
		page, err := d.eventPageOf(r)
		if err != nil {
			return err
		}
		err = d.scan(r.Context(), c.Project, page)
		// the last event of a part expired before the next part was read
		if errors.Is(err, store.ErrNotFound) && again {
			continue
		}
		if err != nil {
			return fmt.Errorf("list events: %w", err)
		}
		return x.JSON(http.StatusOK, page.found)
	}
}

// scan reads the events of a project until the page is full.
func (d *Door) scan(ctx context.Context, p berth.ProjectID, page *eventPage) error {
	from := store.Page{Limit: maxEvents, Ascending: page.ascending, Bytes: 8 << 20}
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

// listSandboxEvents serves GET /events/sandboxes/{sandbox}: the events of a sandbox, which may have ended, the
// newest first.
func (d *Door) listSandboxEvents(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	page, err := d.eventPageOf(r)
	if err != nil {
		return err
	}
	id := sandboxOf(r)
	ids, err := d.eventIDs(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	if !page.ascending {
		slices.Reverse(ids)
	}
	for _, one := range ids {
		o, err := d.Objects.GetObject(r.Context(), c.Project, eventKey(one))
		if errors.Is(err, store.ErrNotFound) {
			continue // it has expired, or its change was not made
		}
		if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		full, err := page.add(o)
		if err != nil {
			return err
		}
		if full {
			break
		}
	}
	return x.JSON(http.StatusOK, page.found)
}

// eventIDs returns the ids that events of a sandbox have, the oldest first. It returns an error if the project has no
// such sandbox, or it ended longer ago than eventLife.
func (d *Door) eventIDs(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]string, error) {
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
		if d.Now().Sub(time.UnixMilli(e.At)) > eventLife {
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

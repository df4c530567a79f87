package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d responses) CreateResponse(ctx context.Context, r *store.Response, events []store.Event, lease store.Lease,
	also ...*store.Object) error {
	for i, ev := range events {
		if ev.SequenceNumber != int64(i) {
			return fmt.Errorf("%w: event %d of a new response has number %d", store.ErrConflict, i, ev.SequenceNumber)
		}
	}
	id := string(r.Body.ID)
	row := query.CreateResponseParams{ID: id, Project: string(r.Project), Container: string(r.Container),
		Final: truth(r.Body.Status.Final()), Stored: truth(r.Body.Store), Key: string(r.Key), RequestID: r.RequestID,
		LeaseOwner: lease.Owner, LeaseUntil: lease.Until.UnixMilli()}
	if r.Body.PreviousResponseID != nil && r.Body.Store {
		row.Previous = sql.NullString{String: string(*r.Body.PreviousResponseID), Valid: true}
	}
	k, err := d.keys.New(ctx)
	if err != nil {
		return err
	}
	row.Seal = k.Number()
	boxes, err := k.Response(r)
	if err != nil {
		return err
	}
	objects, err := d.objectRows(ctx, r.Project, also)
	if err != nil {
		return err
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := q.CreateResponse(ctx, row); err != nil {
			return err
		}
		if err := q.CreateRequest(ctx, query.CreateRequestParams{Response: id, Request: boxes.Request,
			Input: boxes.Input}); err != nil {
			return err
		}
		if err := q.CreateBody(ctx, query.CreateBodyParams{Response: id, Body: boxes.Body,
			Output: boxes.Output}); err != nil {
			return err
		}
		if err := appendEvents(ctx, q, k, r.Project, r.Body.ID, events); err != nil {
			return err
		}
		if r.Body.Store {
			if err := addItems(ctx, q, r.Project, r.Body.ID, r.Input); err != nil {
				return err
			}
		}
		return createObjects(ctx, q, objects)
	})
}

// eventRow is the size counted for a row of events besides its box, as in EventBytes.
const eventRow = 64

// appendEvents saves events and counts them in the project's StoredBytes.
func appendEvents(ctx context.Context, q *query.Queries, k sealed.Key, p berth.ProjectID, id berth.ResponseID,
	events []store.Event) error {
	var bytes int64
	for _, row := range k.Events(events) {
		err := q.AppendEvents(ctx, query.AppendEventsParams{Response: string(id), SequenceNumber: row.First,
			Data: row.Box, Span: row.Span, Size: row.Size})
		if err != nil {
			return err
		}
		bytes += int64(len(row.Box)) + eventRow
	}
	return q.AddStored(ctx, query.AddStoredParams{Project: string(p), Bytes: bytes})
}

func (d responses) GetResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*store.Response, error) {
	if store.Reserves(ctx) {
		size, err := d.queries.ResponseSize(ctx, query.ResponseSizeParams{ID: string(id), Project: string(p)})
		if err != nil {
			return nil, d.wrap(err)
		}
		if err := store.Reserve(ctx, size.Body+size.Request); err != nil {
			return nil, err
		}
	}
	row, err := d.queries.GetResponse(ctx, query.GetResponseParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	r := &store.Response{Project: p, Container: berth.ContainerID(row.Container),
		Key: berth.KeyID(row.Key), RequestID: row.RequestID}
	err = d.keys.Opener().Response(ctx, sealed.Response{Request: row.Request, Input: row.Input, Body: row.Body,
		Output: row.Output}, r)
	if err != nil {
		return nil, d.damaged("response "+string(id)+": ", err)
	}
	return r, nil
}

func (d responses) DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) ([]int64, error) {
		if err := d.countUnfinished(ctx, q, p, id); err != nil {
			return nil, err
		}
		n, err := q.DeleteResponse(ctx, query.DeleteResponseParams{ID: string(id), Project: string(p)})
		if err != nil {
			return nil, err
		}
		bytes, err := q.EventBytes(ctx, string(id))
		if err != nil {
			return nil, err
		}
		if err := q.AddStored(ctx, query.AddStoredParams{Project: string(p), Bytes: -bytes}); err != nil {
			return nil, err
		}
		if err := errors.Join(q.DeleteRequest(ctx, string(id)), q.DeleteBody(ctx, string(id)),
			q.DeleteEvents(ctx, string(id)), q.DeleteItems(ctx, string(id))); err != nil {
			return nil, err
		}
		return []int64{n}, prune(ctx, q, id)
	})
}

// prune removes a deleted response that no other continues, and then its deleted
// ancestors.
func prune(ctx context.Context, q *query.Queries, id berth.ResponseID) error {
	for next := (sql.NullString{String: string(id), Valid: true}); next.Valid; {
		previous, err := q.PruneResponse(ctx, next.String)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		next = previous
	}
	return nil
}

func (d responses) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string,
	events []store.Event, body *berth.Response, also ...*store.Object) error {
	if len(events) == 0 {
		return nil
	}
	first := events[0].SequenceNumber
	for i, ev := range events {
		if ev.SequenceNumber != first+int64(i) {
			return fmt.Errorf("%w: event %d after %d", store.ErrConflict, ev.SequenceNumber, events[i-1].SequenceNumber)
		}
	}
	objects, err := d.objectRows(ctx, p, also)
	if err != nil {
		return err
	}
	save := d.update
	if body != nil && body.Status.Final() {
		save = d.settle
	}
	return save(ctx, func(ctx context.Context, q *query.Queries) error {
		row, err := q.NextEvent(ctx, query.NextEventParams{ID: string(id), Project: string(p), LeaseOwner: owner})
		if errors.Is(err, sql.ErrNoRows) {
			return absentOr(ctx, q, p, id, store.ErrConflict)
		}
		if err != nil {
			return err
		}
		if row.Next != first {
			return fmt.Errorf("%w: event %d, want %d", store.ErrConflict, first, row.Next)
		}
		k, err := d.keys.Get(ctx, row.Seal)
		if err != nil {
			return err
		}
		if err := errors.Join(appendEvents(ctx, q, k, p, id, events), addObjects(ctx, q, objects)); err != nil ||
			body == nil {
			return err
		}
		fold := query.UpdateBodyParams{Response: string(id)}
		if fold.Body, fold.Output, err = k.ResponseBody(body); err != nil {
			return err
		}
		if err := q.UpdateBody(ctx, fold); err != nil || !body.Status.Final() {
			return err
		}
		key, err := q.FinishResponse(ctx, string(id))
		if err != nil {
			return err
		}
		if body.Store {
			if err := addItems(ctx, q, p, id, body.Output); err != nil {
				return err
			}
		}
		return countResponse(ctx, q, p, key, body)
	})
}

// absentOr returns ErrNotFound if the response does not exist, else err.
func absentOr(ctx context.Context, q *query.Queries, p berth.ProjectID, id berth.ResponseID, err error) error {
	n, qerr := q.ResponseExists(ctx, query.ResponseExistsParams{ID: string(id), Project: string(p)})
	if qerr != nil {
		return qerr
	}
	if n == 0 {
		return store.ErrNotFound
	}
	return err
}

func (d responses) Events(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64,
	limit int) ([]store.Event, error) {
	if err := absentOr(ctx, d.queries, p, id, nil); err != nil {
		return nil, d.wrap(err)
	}
	first, last, bytes, err := d.page(ctx, id, after, limit)
	if err != nil {
		return nil, d.wrap(err)
	}
	if last <= after {
		return nil, nil
	}
	if err := store.Reserve(ctx, bytes); err != nil {
		return nil, err
	}
	rows, err := d.queries.Events(ctx, query.EventsParams{Response: string(id), First: first, Last: last})
	if err != nil {
		return nil, d.wrap(err)
	}
	store.ReturnUndecoded(ctx, bytes) // the events are not decoded here
	var events []store.Event
	o := d.keys.Opener()
	for _, r := range rows {
		of, err := openEvents(ctx, o, r)
		if err != nil {
			return nil, d.damaged("response "+string(id)+": ", err)
		}
		events = append(events, of...)
	}
	events = slices.DeleteFunc(events, func(ev store.Event) bool { return ev.SequenceNumber <= after })
	return events[:min(limit, len(events))], nil
}

// openEvents returns the events of a row.
func openEvents(ctx context.Context, o *sealed.Opener, r query.EventsRow) ([]store.Event, error) {
	if r.Type == "" {
		return o.Events(ctx, r.Data, r.SequenceNumber)
	}
	data, err := o.Event(ctx, r.Data)
	return []store.Event{{SequenceNumber: r.SequenceNumber, Type: berth.EventType(r.Type), Data: data}}, err
}

func (d responses) Chain(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([]store.Link, error) {
	if store.Reserves(ctx) {
		size, err := d.queries.ChainSize(ctx, query.ChainSizeParams{ID: string(id), Project: string(p)})
		if err != nil {
			return nil, d.wrap(err)
		}
		if err := store.Reserve(ctx, size); err != nil {
			return nil, err
		}
	}
	rows, err := d.queries.Chain(ctx, query.ChainParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	if len(rows) == 0 {
		return nil, store.ErrNotFound
	}
	slices.SortFunc(rows, func(a, b query.ChainRow) int { return cmp.Compare(b.Depth, a.Depth) })
	links := make([]store.Link, 0, len(rows))
	o := d.keys.Opener()
	for i, r := range rows {
		link := store.Link{ID: berth.ResponseID(r.ID), Container: berth.ContainerID(r.Container)}
		link.Input, link.Output, err = o.Items(ctx, r.Input, r.Output)
		if errors.Is(err, store.ErrNotFound) && i < len(rows)-1 {
			continue // an ancestor, deleted just now
		}
		if err != nil {
			return nil, d.damaged("response "+r.ID+": ", err)
		}
		links = append(links, link)
	}
	return links, nil
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

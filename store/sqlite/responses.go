package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d *DB) CreateResponse(ctx context.Context, r *store.Response, events []store.Event, lease store.Lease, also ...*store.Object) error {
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
	body, output, err := encoded(r.Body)
	if err != nil {
		return err
	}
	request, err := json.Marshal(r.Request)
	if err != nil {
		return err
	}
	input, err := json.Marshal(r.Input)
	if err != nil {
		return err
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := q.CreateResponse(ctx, row); err != nil {
			return err
		}
		if err := q.CreateRequest(ctx, query.CreateRequestParams{Response: id, Request: request, Input: input}); err != nil {
			return err
		}
		if err := q.CreateBody(ctx, query.CreateBodyParams{Response: id, Body: body, Output: output}); err != nil {
			return err
		}
		if err := appendEvents(ctx, q, r.Body.ID, events); err != nil {
			return err
		}
		if r.Body.Store {
			if err := addItems(ctx, q, r.Project, r.Body.ID, r.Input); err != nil {
				return err
			}
		}
		return createObjects(ctx, q, r.Project, also)
	})
}

// encoded is a response's object as it is kept: its output apart, so that a chain
// is read without the rest.
func encoded(r *berth.Response) (body, output []byte, err error) {
	if output, err = json.Marshal(r.Output); err != nil {
		return nil, nil, err
	}
	bare := *r
	bare.Output = []berth.Item{}
	body, err = json.Marshal(&bare)
	return body, output, err
}

func appendEvents(ctx context.Context, q *query.Queries, id berth.ResponseID, events []store.Event) error {
	for _, ev := range events {
		err := q.AppendEvent(ctx, query.AppendEventParams{Response: string(id), SequenceNumber: ev.SequenceNumber, Type: string(ev.Type), Data: ev.Data})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) GetResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*store.Response, error) {
	row, err := d.queries.GetResponse(ctx, query.GetResponseParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	r := &store.Response{Project: p, Container: berth.ContainerID(row.Container),
		Key: berth.KeyID(row.Key), RequestID: row.RequestID}
	err = errors.Join(json.Unmarshal(row.Body, &r.Body), json.Unmarshal(row.Request, &r.Request), json.Unmarshal(row.Input, &r.Input))
	if err == nil {
		err = json.Unmarshal(row.Output, &r.Body.Output)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: %s: response %s: %w", d.path, id, err)
	}
	return r, nil
}

func (d *DB) DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := countUnfinished(ctx, q, p, id); err != nil {
			return err
		}
		if err := found(q.DeleteResponse(ctx, query.DeleteResponseParams{ID: string(id), Project: string(p)})); err != nil {
			return err
		}
		if err := errors.Join(q.DeleteRequest(ctx, string(id)), q.DeleteBody(ctx, string(id)),
			q.DeleteEvents(ctx, string(id)), q.DeleteItems(ctx, string(id))); err != nil {
			return err
		}
		return prune(ctx, q, id)
	})
}

// prune forgets a deleted response that no other continues, and then its deleted
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

func (d *DB) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string, events []store.Event, body *berth.Response, also ...*store.Object) error {
	if len(events) == 0 {
		return nil
	}
	first := events[0].SequenceNumber
	for i, ev := range events {
		if ev.SequenceNumber != first+int64(i) {
			return fmt.Errorf("%w: event %d after %d", store.ErrConflict, ev.SequenceNumber, events[i-1].SequenceNumber)
		}
	}
	fold := query.UpdateBodyParams{Response: string(id)}
	if body != nil {
		var err error
		if fold.Body, fold.Output, err = encoded(body); err != nil {
			return err
		}
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		next, err := q.NextEvent(ctx, query.NextEventParams{ID: string(id), Project: string(p), LeaseOwner: owner})
		if errors.Is(err, sql.ErrNoRows) {
			return absentOr(ctx, q, p, id, store.ErrConflict)
		}
		if err != nil {
			return err
		}
		if next != first {
			return fmt.Errorf("%w: event %d where %d is next", store.ErrConflict, first, next)
		}
		if err := errors.Join(appendEvents(ctx, q, id, events), addObjects(ctx, q, p, also)); err != nil || body == nil {
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

// absentOr returns ErrNotFound if the response is not there, and otherwise err.
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

func (d *DB) Events(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64, limit int) ([]store.Event, error) {
	if err := absentOr(ctx, d.queries, p, id, nil); err != nil {
		return nil, d.wrap(err)
	}
	rows, err := d.queries.Events(ctx, query.EventsParams{Response: string(id), SequenceNumber: after, Limit: int64(limit)})
	if err != nil {
		return nil, d.wrap(err)
	}
	events := make([]store.Event, len(rows))
	for i, r := range rows {
		events[i] = store.Event{SequenceNumber: r.SequenceNumber, Type: berth.EventType(r.Type), Data: r.Data}
	}
	return events, nil
}

func (d *DB) Chain(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([]store.Link, error) {
	rows, err := d.queries.Chain(ctx, query.ChainParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	if len(rows) == 0 {
		return nil, store.ErrNotFound
	}
	slices.SortFunc(rows, func(a, b query.ChainRow) int { return cmp.Compare(b.Depth, a.Depth) })
	links := make([]store.Link, len(rows))
	for i, r := range rows {
		links[i] = store.Link{ID: berth.ResponseID(r.ID), Container: berth.ContainerID(r.Container)}
		if err := errors.Join(json.Unmarshal(r.Input, &links[i].Input), json.Unmarshal(r.Output, &links[i].Output)); err != nil {
			return nil, fmt.Errorf("sqlite: %s: response %s: %w", d.path, r.ID, err)
		}
	}
	return links, nil
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

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

func (d *DB) CreateResponse(ctx context.Context, r *store.Response, events []store.Event, lease store.Lease) error {
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
	args := query.CreateResponseParams{ID: string(r.Body.ID), Project: string(r.Project), Container: string(r.Container),
		Final: truth(r.Body.Status.Final()), Stored: truth(r.Body.Store), Body: body, Output: output, Request: request,
		Input: input, NextEvent: int64(len(events)), LeaseOwner: lease.Owner, LeaseUntil: lease.Until.UnixMilli()}
	if r.Body.PreviousResponseID != nil {
		args.Previous = sql.NullString{String: string(*r.Body.PreviousResponseID), Valid: true}
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := q.CreateResponse(ctx, args); err != nil {
			return err
		}
		return appendEvents(ctx, q, r.Body.ID, events)
	})
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
		return nil, wrap(err)
	}
	r := &store.Response{Project: p, Container: berth.ContainerID(row.Container)}
	err = errors.Join(json.Unmarshal(row.Body, &r.Body), json.Unmarshal(row.Output, &r.Body.Output),
		json.Unmarshal(row.Request, &r.Request), json.Unmarshal(row.Input, &r.Input))
	if err != nil {
		return nil, fmt.Errorf("response %s: %w", id, err)
	}
	return r, nil
}

func (d *DB) DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	defer d.deleted()
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := found(q.DeleteResponse(ctx, query.DeleteResponseParams{ID: string(id), Project: string(p)})); err != nil {
			return err
		}
		return q.DeleteEvents(ctx, string(id))
	})
}

func (d *DB) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string, events []store.Event, body *berth.Response) error {
	if len(events) == 0 {
		return nil
	}
	var fold query.FoldResponseParams
	if body != nil {
		raw, output, err := encoded(body)
		if err != nil {
			return err
		}
		fold = query.FoldResponseParams{Body: raw, Output: output, Final: truth(body.Status.Final()), ID: string(id)}
	}
	first := events[0].SequenceNumber
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		n, err := q.AdvanceResponse(ctx, query.AdvanceResponseParams{NextEvent: first + int64(len(events)), ID: string(id),
			Project: string(p), FirstEvent: first, Owner: owner})
		if err != nil {
			return err
		}
		if n == 0 {
			return absentOr(ctx, q, p, id, store.ErrConflict)
		}
		if err := appendEvents(ctx, q, id, events); err != nil {
			return err
		}
		if body == nil {
			return nil
		}
		return q.FoldResponse(ctx, fold)
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
		return nil, err
	}
	rows, err := d.queries.Events(ctx, query.EventsParams{Response: string(id), SequenceNumber: after, Limit: int64(limit)})
	if err != nil {
		return nil, err
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
		return nil, err
	}
	if len(rows) == 0 {
		return nil, store.ErrNotFound
	}
	links := make([]store.Link, len(rows))
	for i, r := range rows {
		links[i] = store.Link{ID: berth.ResponseID(r.ID), Container: berth.ContainerID(r.Container)}
		if err := errors.Join(json.Unmarshal(r.Input, &links[i].Input), json.Unmarshal(r.Output, &links[i].Output)); err != nil {
			return nil, fmt.Errorf("response %s: %w", r.ID, err)
		}
	}
	return links, nil
}

func (d *DB) AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease, now time.Time) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		n, err := q.AcquireRun(ctx, query.AcquireRunParams{Owner: lease.Owner, Until: lease.Until.UnixMilli(), ID: string(id), Project: string(p), Now: now.UnixMilli()})
		if err != nil || n > 0 {
			return err
		}
		return absentOr(ctx, q, p, id, store.ErrConflict)
	})
}

func (d *DB) ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.ReleaseRun(ctx, query.ReleaseRunParams{ID: string(id), Project: string(p), LeaseOwner: owner})
	})
}

func (d *DB) OrphanedRuns(ctx context.Context, now time.Time) ([]store.RunRef, error) {
	rows, err := d.queries.OrphanedRuns(ctx, now.UnixMilli())
	if err != nil {
		return nil, err
	}
	refs := make([]store.RunRef, len(rows))
	for i, r := range rows {
		refs[i] = store.RunRef{Project: berth.ProjectID(r.Project), Response: berth.ResponseID(r.ID)}
	}
	return refs, nil
}

func (d *DB) ReleaseOwner(ctx context.Context, owner string) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error { return q.ReleaseOwner(ctx, owner) })
}

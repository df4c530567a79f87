package sql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
)

func (d responses) CreateResponse(ctx context.Context, r *store.Response, events []store.Event, lease store.Lease,
	also ...*store.Object) error {
	for i, ev := range events {
		if ev.SequenceNumber != int64(i) {
			return fmt.Errorf("%w: event %d of a new response has number %d", store.ErrConflict, i, ev.SequenceNumber)
		}
	}
	id := string(r.Body.ID)
	var previous *berth.ResponseID
	if r.Body.Store {
		previous = r.Body.PreviousResponseID
	}
	k, err := d.keys.New(ctx)
	if err != nil {
		return err
	}
	boxes, err := k.Response(r)
	if err != nil {
		return err
	}
	objects, err := d.objectRows(ctx, r.Project, also)
	if err != nil {
		return err
	}
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		tx.touch(id)
		if err := tx.Run(ctx, `INSERT INTO responses (id, project, previous, container, final, stored, key,
				request_id, lease_owner, lease_until, seal)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, {now} + $10, $11)`,
			id, string(r.Project), previous, string(r.Container), r.Body.Status.Final(), r.Body.Store, string(r.Key),
			r.RequestID, lease.Owner, time.Until(lease.Until).Milliseconds(), k.Number()); err != nil {
			return err
		}
		if err := tx.Run(ctx, `INSERT INTO requests (response, request, input) VALUES ($1, $2, $3)`,
			id, boxes.Request, boxes.Input); err != nil {
			return err
		}
		if err := tx.Run(ctx, `INSERT INTO bodies (response, body, output) VALUES ($1, $2, $3)`,
			id, boxes.Body, boxes.Output); err != nil {
			return err
		}
		if err := d.appendEvents(ctx, tx, k, r.Project, r.Body.ID, events); err != nil {
			return err
		}
		if r.Body.Store {
			if err := addItems(ctx, tx, r.Project, r.Body.ID, r.Input); err != nil {
				return err
			}
		}
		return createObjects(ctx, tx, objects)
	})
}

// eventRow is the size counted for a row of events besides its box.
const eventRow = 64

// appendEvents saves events and counts them in the project's StoredBytes.
func (d responses) appendEvents(ctx context.Context, tx *Tx, k sealed.Key, p berth.ProjectID, id berth.ResponseID,
	events []store.Event) error {
	var bytes int64
	for _, row := range k.Events(events) {
		if err := tx.Run(ctx, d.own.AppendEvents, string(id), row.First, row.Box, row.Span, row.Size); err != nil {
			return err
		}
		bytes += int64(len(row.Box)) + eventRow
	}
	return addStored(ctx, tx, p, bytes)
}

// sizes are the sizes of the boxes of a response and its request.
type sizes struct {
	store.ResponseState
	body, request int64
}

func (d responses) size(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (s sizes, err error) {
	err = d.read(ctx, `SELECT r.stored, r.final, CAST(octet_length(b.body) AS bigint) + octet_length(b.output),
			CAST(octet_length(q.request) AS bigint) + octet_length(q.input)
		FROM responses r JOIN requests q ON q.response = r.id JOIN bodies b ON b.response = r.id
		WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted`,
		in{string(id), string(p)}, &s.Stored, &s.Final, &s.body, &s.request)
	return s, err
}

func (d responses) ResponseState(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (store.ResponseState,
	error) {
	s, err := d.size(ctx, p, id)
	return s.ResponseState, err
}

func (d responses) GetResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*store.Response, error) {
	if store.Reserves(ctx) {
		size, err := d.size(ctx, p, id)
		if err != nil {
			return nil, err
		}
		if err := store.Reserve(ctx, size.body+size.request); err != nil {
			return nil, err
		}
	}
	r := &store.Response{Project: p}
	var boxes sealed.Response
	err := d.read(ctx, `SELECT b.body, b.output, q.request, q.input, r.container, r.key, r.request_id
		FROM responses r JOIN requests q ON q.response = r.id JOIN bodies b ON b.response = r.id
		WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted`,
		in{string(id), string(p)}, &boxes.Body, &boxes.Output, &boxes.Request, &boxes.Input,
		&r.Container, &r.Key, &r.RequestID)
	if err != nil {
		return nil, err
	}
	if err := d.keys.Opener().Response(ctx, boxes, r); err != nil {
		return nil, d.damaged("response "+string(id)+": ", err)
	}
	return r, nil
}

func (d responses) ReadResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([][]byte, error) {
	size, err := d.size(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if err := store.Reserve(ctx, size.body); err != nil {
		return nil, err
	}
	var body, output []byte
	if err := d.read(ctx, `SELECT body, output FROM bodies WHERE response = $1`, in{string(id)}, &body, &output); err != nil {
		return nil, err
	}
	store.ReturnUndecoded(ctx, size.body)
	pieces, err := d.keys.Opener().ResponseJSON(ctx, body, output)
	if err != nil {
		return nil, d.damaged("response "+string(id)+": ", err)
	}
	return pieces, nil
}

func (d responses) DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	return d.erase(ctx, func(ctx context.Context, tx *Tx) ([]int64, error) {
		tx.touch(string(id))
		if err := d.countUnfinished(ctx, tx, p, id); err != nil {
			return nil, err
		}
		var seal, bytes int64
		if err := Read(ctx, tx, `UPDATE responses SET deleted = true, final = true, container = '',
				lease_owner = '', lease_until = 0
			WHERE id = $1 AND project = $2 AND NOT deleted RETURNING seal`, in{string(id), string(p)}, &seal); err != nil {
			return nil, err
		}
		if err := Read(ctx, tx, `SELECT CAST(coalesce(sum(octet_length(data) + 64), 0) AS bigint)
			FROM events WHERE response = $1`, in{string(id)}, &bytes); err != nil {
			return nil, err
		}
		if err := addStored(ctx, tx, p, -bytes); err != nil {
			return nil, err
		}
		for _, text := range []string{`DELETE FROM requests WHERE response = $1`,
			`DELETE FROM bodies WHERE response = $1`, `DELETE FROM events WHERE response = $1`,
			`DELETE FROM items WHERE response = $1`} {
			if err := tx.Run(ctx, text, string(id)); err != nil {
				return nil, err
			}
		}
		return []int64{seal}, prune(ctx, tx, id)
	})
}

// prune removes a deleted response that no other continues, and then its deleted
// ancestors.
func prune(ctx context.Context, tx *Tx, id berth.ResponseID) error {
	for next := &id; next != nil; {
		var previous *berth.ResponseID
		err := Read(ctx, tx, `DELETE FROM responses WHERE id = $1 AND deleted
				AND NOT EXISTS (SELECT 1 FROM responses next WHERE next.previous = responses.id)
			RETURNING previous`, in{*next}, &previous)
		if errors.Is(err, store.ErrNotFound) {
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
	update := d.driver.Update
	if body != nil && body.Status.Final() {
		update = d.driver.UpdateWithReserve
	}
	return update(ctx, func(ctx context.Context, tx *Tx) error {
		tx.touch(string(id))
		var next, seal int64
		err := Read(ctx, tx, `SELECT coalesce((SELECT e.sequence_number + e.span FROM events e
				WHERE e.response = r.id ORDER BY e.sequence_number DESC LIMIT 1), 0), seal
			FROM responses r
			WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted AND NOT r.final AND r.lease_owner = $3`,
			in{string(id), string(p), owner}, &next, &seal)
		if errors.Is(err, store.ErrNotFound) {
			return absentOr(ctx, tx, p, id, store.ErrConflict)
		}
		if err != nil {
			return err
		}
		if next != first {
			return fmt.Errorf("%w: event %d, want %d", store.ErrConflict, first, next)
		}
		k, err := d.keys.Get(ctx, seal)
		if err != nil {
			return err
		}
		if err := d.appendEvents(ctx, tx, k, p, id, events); err != nil {
			return err
		}
		if err := addObjects(ctx, tx, objects); err != nil || body == nil {
			return err
		}
		return fold(ctx, tx, k, p, id, body)
	})
}

// fold saves a response up to its last events. If it has ended, fold counts it.
func fold(ctx context.Context, tx *Tx, k sealed.Key, p berth.ProjectID, id berth.ResponseID,
	r *berth.Response) error {
	body, output, err := k.ResponseBody(r)
	if err != nil {
		return err
	}
	err = tx.Run(ctx, `UPDATE bodies SET body = $1, output = $2 WHERE response = $3`, body, output, string(id))
	if err != nil || !r.Status.Final() {
		return err
	}
	var key berth.KeyID
	if err := Read(ctx, tx, `UPDATE responses SET final = true WHERE id = $1 RETURNING key`, in{string(id)}, &key); err != nil {
		return err
	}
	if r.Store {
		if err := addItems(ctx, tx, p, id, r.Output); err != nil {
			return err
		}
	}
	return countResponse(ctx, tx, p, key, r)
}

// absentOr returns ErrNotFound if the response does not exist, else err.
func absentOr(ctx context.Context, r Reader, p berth.ProjectID, id berth.ResponseID, err error) error {
	var one int
	if err := Read(ctx, r, `SELECT 1 FROM responses WHERE id = $1 AND project = $2 AND NOT deleted`,
		in{string(id), string(p)}, &one); err != nil {
		return err
	}
	return err
}

// An eventsRow is a row of events.
type eventsRow struct {
	first int64
	kind  berth.EventType // of a single event that a former version wrote, else empty
	box   []byte
}

func (r eventsRow) open(ctx context.Context, o *sealed.Opener) ([]store.Event, error) {
	if r.kind == "" {
		return o.Events(ctx, r.box, r.first)
	}
	data, err := o.Event(ctx, r.box)
	return []store.Event{{SequenceNumber: r.first, Type: r.kind, Data: data}}, err
}

func (d responses) Events(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64,
	limit int) ([]store.Event, error) {
	if err := absentOr(ctx, d.driver, p, id, nil); err != nil {
		return nil, d.driver.Convert(err)
	}
	first, last, bytes, err := d.page(ctx, id, after, limit)
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	if last <= after {
		return nil, nil
	}
	if err := store.Reserve(ctx, bytes); err != nil {
		return nil, err
	}
	rows, err := List(ctx, d.driver, d.own.Events, in{string(id), first, last},
		func(r *eventsRow) []any { return []any{&r.first, &r.kind, &r.box} })
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	store.ReturnUndecoded(ctx, bytes) // the events are not decoded here
	var events []store.Event
	o := d.keys.Opener()
	for _, r := range rows {
		of, err := r.open(ctx, o)
		if err != nil {
			return nil, d.damaged("response "+string(id)+": ", err)
		}
		events = append(events, of...)
	}
	events = slices.DeleteFunc(events, func(ev store.Event) bool { return ev.SequenceNumber <= after })
	return events[:min(limit, len(events))], nil
}

// page returns the first row and the last event of a page above after, and the size of its
// rows. If there are no events, last is not above after.
func (d responses) page(ctx context.Context, id berth.ResponseID, after int64, limit int) (first, last, bytes int64,
	err error) {
	type row struct{ first, span, bytes int64 }
	rows, err := List(ctx, d.driver, `SELECT e.sequence_number, e.span,
			CASE WHEN e.size > octet_length(e.data) THEN e.size ELSE octet_length(e.data) END
		FROM events e
		WHERE e.response = $1 AND e.sequence_number >= (
			SELECT coalesce(max(f.sequence_number), 0) FROM events f
			WHERE f.response = $1 AND f.sequence_number <= $2)
		ORDER BY e.sequence_number LIMIT $3`,
		in{string(id), after + 1, limit}, func(r *row) []any { return []any{&r.first, &r.span, &r.bytes} })
	if err != nil || len(rows) == 0 {
		return 0, after, 0, err
	}
	list := make([]store.Size, len(rows))
	for i, r := range rows {
		list[i] = store.Size{SequenceNumber: r.first + r.span - 1, Bytes: r.bytes}
	}
	last, bytes = store.EventPage(after, list)
	return rows[0].first, last, bytes, nil
}

func (d responses) Chain(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([]store.Link, error) {
	if store.Reserves(ctx) {
		var size int64
		if err := d.read(ctx, `WITH RECURSIVE chain (id, previous) AS (
				SELECT r.id, r.previous FROM responses r WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted
				UNION ALL
				SELECT r.id, r.previous FROM responses r JOIN chain ON r.id = chain.previous WHERE r.project = $2
			)
			SELECT CAST(coalesce(sum(CAST(octet_length(q.input) AS bigint) + octet_length(b.output)), 0) AS bigint)
			FROM chain JOIN requests q ON q.response = chain.id JOIN bodies b ON b.response = chain.id`,
			in{string(id), string(p)}, &size); err != nil {
			return nil, err
		}
		if err := store.Reserve(ctx, size); err != nil {
			return nil, err
		}
	}
	type row struct {
		id            berth.ResponseID
		container     berth.ContainerID
		depth         int64
		input, output []byte
	}
	// The rows are unordered: a sort would copy all content.
	rows, err := List(ctx, d.driver, `WITH RECURSIVE chain (id, previous, container, depth) AS (
			SELECT r.id, r.previous, r.container, CAST(0 AS bigint) FROM responses r
			WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted
			UNION ALL
			SELECT r.id, r.previous, r.container, chain.depth + 1 FROM responses r JOIN chain ON r.id = chain.previous
			WHERE r.project = $2
		)
		SELECT chain.id, chain.container, chain.depth, q.input, b.output
		FROM chain JOIN requests q ON q.response = chain.id JOIN bodies b ON b.response = chain.id`,
		in{string(id), string(p)},
		func(r *row) []any { return []any{&r.id, &r.container, &r.depth, &r.input, &r.output} })
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	if len(rows) == 0 {
		return nil, store.ErrNotFound
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.depth, a.depth) })
	links := make([]store.Link, 0, len(rows))
	o := d.keys.Opener()
	for i, r := range rows {
		link := store.Link{ID: r.id, Container: r.container}
		link.Input, link.Output, err = o.Items(ctx, r.input, r.output)
		if errors.Is(err, store.ErrNotFound) && i < len(rows)-1 {
			continue // an ancestor, deleted just now
		}
		if err != nil {
			return nil, d.damaged("response "+string(r.id)+": ", err)
		}
		links = append(links, link)
	}
	return links, nil
}

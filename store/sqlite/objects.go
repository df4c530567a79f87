package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d objects) CreateObjects(ctx context.Context, p berth.ProjectID, objects ...*store.Object) error {
	rows, err := d.objectRows(ctx, p, objects)
	if err != nil {
		return err
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error { return createObjects(ctx, q, rows) })
}

func createObjects(ctx context.Context, q *query.Queries, rows []query.CreateObjectParams) error {
	for _, row := range rows {
		if err := found(q.CreateObject(ctx, row)); err != nil {
			return err
		}
	}
	return nil
}

// addObjects saves the objects whose keys are free and whose parents exist.
func addObjects(ctx context.Context, q *query.Queries, rows []query.CreateObjectParams) error {
	for _, row := range rows {
		if err := q.AddObject(ctx, query.AddObjectParams(row)); err != nil {
			return err
		}
	}
	return nil
}

// objectRows seals objects, each under its own key.
func (d *core) objectRows(ctx context.Context, p berth.ProjectID, objects []*store.Object) ([]query.CreateObjectParams,
	error) {
	rows := make([]query.CreateObjectParams, len(objects))
	for i, o := range objects {
		key, err := d.keys.New(ctx)
		if err != nil {
			return nil, err
		}
		rows[i] = query.CreateObjectParams{Project: string(p), Kind: string(o.Kind), Parent: o.Parent, ID: o.ID,
			CreatedAt: o.CreatedAt, ExpiresAt: expiry(o), Body: key.Object(o.Body), Seal: key.Number()}
	}
	return rows, nil
}

func expiry(o *store.Object) sql.NullInt64 {
	return sql.NullInt64{Int64: o.ExpiresAt, Valid: o.ExpiresAt != 0}
}

func (d objects) GetObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey) (*store.Object, error) {
	if store.Reserves(ctx) {
		size, err := d.queries.ObjectSize(ctx, query.ObjectSizeParams(objectKey(p, key)))
		if err != nil {
			return nil, d.wrap(err)
		}
		if err := store.Reserve(ctx, size); err != nil {
			return nil, err
		}
	}
	row, err := d.queries.GetObject(ctx, objectKey(p, key))
	if err != nil {
		return nil, d.wrap(err)
	}
	o := &store.Object{ObjectKey: key, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt.Int64}
	if o.Body, err = d.keys.Opener().Object(ctx, row.Body); err != nil {
		return nil, d.damaged(key.ID+": ", err)
	}
	return o, nil
}

func objectKey(p berth.ProjectID, key store.ObjectKey) query.GetObjectParams {
	return query.GetObjectParams{Project: string(p), Parent: key.Parent, Kind: string(key.Kind), ID: key.ID}
}

func (d objects) ListObjects(ctx context.Context, p berth.ProjectID, kind store.Kind, parent string,
	page store.Page) ([]*store.Object, bool, error) {
	number := func(id string, otherwise int64) (int64, error) {
		if id == "" {
			return otherwise, nil
		}
		row, err := d.queries.GetObject(ctx, objectKey(p, store.ObjectKey{Kind: kind, Parent: parent, ID: id}))
		return row.Number, d.wrap(err)
	}
	args := query.ListObjectsAscendingParams{Project: string(p), Parent: parent, Kind: string(kind),
		N: int64(page.Limit) + 1}
	first, last := page.After, page.Before // in ascending order
	if !page.Ascending {
		first, last = last, first
	}
	var err error
	if args.Above, err = number(first, math.MinInt64); err != nil {
		return nil, false, err
	}
	if args.Below, err = number(last, math.MaxInt64); err != nil {
		return nil, false, err
	}
	backwards := page.After == "" && page.Before != "" // the rows before Before, in reverse
	limit, cut, err := d.fit(ctx, args, page.Ascending != backwards, page)
	if err != nil {
		return nil, false, err
	}
	args.N = int64(limit) + 1
	if cut {
		args.N-- // the next object exists and may be large
	}
	var rows []query.ListObjectsAscendingRow
	if page.Ascending != backwards {
		rows, err = d.queries.ListObjectsAscending(ctx, args)
	} else {
		var down []query.ListObjectsDescendingRow
		down, err = d.queries.ListObjectsDescending(ctx, query.ListObjectsDescendingParams(args))
		for _, r := range down {
			rows = append(rows, query.ListObjectsAscendingRow(r))
		}
	}
	if err != nil {
		return nil, false, d.wrap(err)
	}
	objects := make([]*store.Object, 0, min(len(rows), limit))
	open := d.keys.Opener()
	for _, r := range rows[:cap(objects)] {
		body, err := open.Object(ctx, r.Body)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, false, d.damaged(r.ID+": ", err)
		}
		objects = append(objects, &store.Object{ObjectKey: store.ObjectKey{Kind: kind, Parent: parent, ID: r.ID},
			CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt.Int64, Body: body})
	}
	if backwards {
		slices.Reverse(objects)
	}
	return objects, cut || len(rows) > limit, nil
}

func (d objects) UpdateObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey,
	change func(*store.Object) error) (*store.Object, error) {
	var o *store.Object
	err := d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		row, err := q.GetObject(ctx, objectKey(p, key))
		if err != nil {
			return err
		}
		o = &store.Object{ObjectKey: key, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt.Int64}
		open := d.keys.Opener()
		if o.Body, err = open.Object(ctx, row.Body); err != nil {
			return err
		}
		if err := change(o); err != nil {
			return err
		}
		o.ObjectKey, o.CreatedAt = key, row.CreatedAt
		return q.UpdateObject(ctx, query.UpdateObjectParams{Number: row.Number, ExpiresAt: expiry(o),
			Body: open.Key().Object(o.Body)})
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (d objects) DeleteObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey) error {
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) ([]int64, error) {
		n, err := q.DeleteObject(ctx, query.DeleteObjectParams(objectKey(p, key)))
		if err != nil {
			return nil, err
		}
		gone, err := deleteChildren(ctx, q, p, key.ID)
		return append(gone, n), err
	})
}

// deleteChildren removes all descendants of an object or a container. It returns their
// keys.
func deleteChildren(ctx context.Context, q *query.Queries, p berth.ProjectID, id string) (gone []int64, err error) {
	for parents := []string{id}; len(parents) > 0; parents = parents[1:] {
		children, err := q.DeleteChildObjects(ctx, query.DeleteChildObjectsParams{Project: string(p),
			Parent: parents[0]})
		if err != nil {
			return nil, err
		}
		for _, c := range children {
			parents = append(parents, c.ID)
			gone = append(gone, c.Seal)
		}
	}
	return gone, nil
}

func (d objects) ExpiredObjects(ctx context.Context, kind store.Kind, now time.Time, limit int) ([]store.ObjectRef,
	error) {
	rows, err := d.queries.ExpiredObjects(ctx, query.ExpiredObjectsParams{Kind: string(kind),
		Now: sql.NullInt64{Int64: now.Unix(), Valid: true}, N: int64(limit)})
	if err != nil {
		return nil, d.wrap(err)
	}
	refs := make([]store.ObjectRef, len(rows))
	for i, r := range rows {
		refs[i] = store.ObjectRef{Project: berth.ProjectID(r.Project),
			ObjectKey: store.ObjectKey{Kind: kind, Parent: r.Parent, ID: r.ID}}
	}
	return refs, nil
}

// fit shortens a page of objects. It returns the number of objects to read, and
// whether the page was shortened.
func (d objects) fit(ctx context.Context, args query.ListObjectsAscendingParams, ascending bool,
	page store.Page) (n int, shortened bool, err error) {
	if !page.Sized(ctx) {
		return page.Limit, false, nil
	}
	var sizes []int64
	if ascending {
		sizes, err = d.queries.ObjectSizesAscending(ctx, query.ObjectSizesAscendingParams(args))
	} else {
		sizes, err = d.queries.ObjectSizesDescending(ctx, query.ObjectSizesDescendingParams(args))
	}
	if err != nil {
		return 0, false, d.wrap(err)
	}
	return page.Fit(ctx, sizes)
}

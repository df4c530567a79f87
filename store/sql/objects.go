package sql

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func (d objects) CreateObjects(ctx context.Context, p berth.ProjectID, objects ...*store.Object) error {
	rows, err := d.objectRows(ctx, p, objects)
	if err != nil {
		return err
	}
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error { return createObjects(ctx, tx, rows) })
}

// An objectRow is a sealed object.
type objectRow struct {
	store.ObjectKey
	values in // the parameters of insertObject
}

// objectRows seals objects, each under its own key.
func (c *core) objectRows(ctx context.Context, p berth.ProjectID, objects []*store.Object) ([]objectRow, error) {
	rows := make([]objectRow, len(objects))
	for i, o := range objects {
		key, err := c.keys.New(ctx)
		if err != nil {
			return nil, err
		}
		rows[i] = objectRow{o.ObjectKey, in{string(p), string(o.Kind), o.Parent, o.ID, o.CreatedAt, expiry(o),
			key.Object(o.Body), key.Number()}}
	}
	return rows, nil
}

// insertObject inserts an object if its parent exists.
const insertObject = `INSERT INTO objects (project, kind, parent, id, created_at, expires_at, body, seal)
	SELECT $1, $2, $3, $4, $5, $6, $7, $8
	WHERE $3 = '' OR EXISTS (SELECT 1 FROM objects WHERE project = $1 AND id = $3)
		OR EXISTS (SELECT 1 FROM containers WHERE id = $3 AND project = $1)`

func createObjects(ctx context.Context, tx *Tx, rows []objectRow) error {
	for _, row := range rows {
		tx.touch(row.ID, row.Parent)
		if err := tx.Change(ctx, insertObject, row.values...); err != nil {
			return err
		}
	}
	return nil
}

// addObjects saves the objects whose keys are free and whose parents exist.
func addObjects(ctx context.Context, tx *Tx, rows []objectRow) error {
	for _, row := range rows {
		tx.touch(row.ID, row.Parent)
		if err := tx.Run(ctx, insertObject+" ON CONFLICT DO NOTHING", row.values...); err != nil {
			return err
		}
	}
	return nil
}

// expiry returns the column expires_at; nil is NULL.
func expiry(o *store.Object) *int64 {
	if o.ExpiresAt == 0 {
		return nil
	}
	return &o.ExpiresAt
}

// thisObject selects an object. Its parameters are those of identity.
const thisObject = ` FROM objects WHERE project = $1 AND parent = $2 AND kind = $3 AND id = $4`

func identity(p berth.ProjectID, key store.ObjectKey) in {
	return in{string(p), key.Parent, string(key.Kind), key.ID}
}

// object reads an object without its key. It returns its number and its box.
func object(ctx context.Context, r Reader, p berth.ProjectID, key store.ObjectKey) (o *store.Object, number int64,
	box []byte, err error) {
	o = &store.Object{ObjectKey: key}
	err = Read(ctx, r, `SELECT number, created_at, coalesce(expires_at, 0), body`+thisObject, identity(p, key),
		&number, &o.CreatedAt, &o.ExpiresAt, &box)
	return o, number, box, err
}

func (d objects) GetObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey) (*store.Object, error) {
	if store.Reserves(ctx) {
		var size int64
		if err := d.read(ctx, `SELECT CAST(octet_length(body) AS bigint)`+thisObject, identity(p, key),
			&size); err != nil {
			return nil, err
		}
		if err := store.Reserve(ctx, size); err != nil {
			return nil, err
		}
	}
	o, _, box, err := object(ctx, d.driver, p, key)
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	if o.Body, err = d.keys.Opener().Object(ctx, box); err != nil {
		return nil, d.damaged(key.ID+": ", err)
	}
	return o, nil
}

// Pages of a parent's objects of a kind, between two numbers.
const (
	objectsBetween = ` FROM objects WHERE project = $1 AND parent = $2 AND kind = $3 AND number > $4 AND number < $5
		ORDER BY number`
	objectsAscending  = objectsBetween + ` LIMIT $6`
	objectsDescending = objectsBetween + ` DESC LIMIT $6`
)

func (d objects) ListObjects(ctx context.Context, p berth.ProjectID, kind store.Kind, parent string,
	page store.Page) ([]*store.Object, bool, error) {
	number := func(id string, otherwise int64) (n int64, err error) {
		if id == "" {
			return otherwise, nil
		}
		err = d.read(ctx, `SELECT number`+thisObject,
			identity(p, store.ObjectKey{Kind: kind, Parent: parent, ID: id}), &n)
		return n, err
	}
	first, last := page.After, page.Before // in ascending order
	if !page.Ascending {
		first, last = last, first
	}
	from, err := number(first, math.MinInt64)
	if err != nil {
		return nil, false, err
	}
	to, err := number(last, math.MaxInt64)
	if err != nil {
		return nil, false, err
	}
	between := objectsDescending
	backwards := page.After == "" && page.Before != "" // the rows before Before, in reverse
	if page.Ascending != backwards {
		between = objectsAscending
	}
	args := in{p, parent, kind, from, to, page.Limit + 1}
	limit, cut, err := d.fit(ctx, between, args, page)
	if err != nil {
		return nil, false, err
	}
	args[5] = limit + 1
	if cut {
		args[5] = limit // the next object exists and may be large
	}
	rows, err := List(ctx, d.driver, `SELECT id, created_at, coalesce(expires_at, 0), body`+between, args,
		func(o *store.Object) []any { return []any{&o.ID, &o.CreatedAt, &o.ExpiresAt, (*[]byte)(&o.Body)} })
	if err != nil {
		return nil, false, d.driver.Convert(err)
	}
	objects := make([]*store.Object, 0, min(len(rows), limit))
	open := d.keys.Opener()
	for i := range rows[:cap(objects)] {
		o := &rows[i]
		o.Kind, o.Parent = kind, parent
		o.Body, err = open.Object(ctx, o.Body)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, false, d.damaged(o.ID+": ", err)
		}
		objects = append(objects, o)
	}
	if backwards {
		slices.Reverse(objects)
	}
	return objects, cut || len(rows) > limit, nil
}

// fit shortens a page of objects. It returns the number of objects to read, and
// whether the page was shortened.
func (d objects) fit(ctx context.Context, between string, args in, page store.Page) (n int, shortened bool,
	err error) {
	if !store.Sized(ctx, page) {
		return page.Limit, false, nil
	}
	sizes, err := Column[int64](ctx, d.driver, `SELECT CAST(octet_length(body) AS bigint)`+between, args...)
	if err != nil {
		return 0, false, d.driver.Convert(err)
	}
	return store.Fit(ctx, page, sizes)
}

func (d objects) UpdateObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey,
	change func(*store.Object) error) (*store.Object, error) {
	var saved *store.Object
	err := d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		tx.touch(key.ID, key.Parent)
		o, number, box, err := object(ctx, tx, p, key)
		if err != nil {
			return err
		}
		open, createdAt := d.keys.Opener(), o.CreatedAt
		if o.Body, err = open.Object(ctx, box); err != nil {
			return err
		}
		if err := change(o); err != nil {
			return err
		}
		o.ObjectKey, o.CreatedAt = key, createdAt
		saved = o
		return tx.Run(ctx, `UPDATE objects SET expires_at = $1, body = $2 WHERE number = $3`,
			expiry(o), open.Key().Object(o.Body), number)
	})
	if err != nil {
		return nil, err
	}
	return saved, nil
}

func (d objects) DeleteObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey) error {
	return d.erase(ctx, func(ctx context.Context, tx *Tx) ([]int64, error) {
		tx.touch(key.ID, key.Parent)
		var seal int64
		if err := Read(ctx, tx, `DELETE`+thisObject+` RETURNING seal`, identity(p, key), &seal); err != nil {
			return nil, err
		}
		gone, err := deleteChildren(ctx, tx, p, key.ID)
		return append(gone, seal), err
	})
}

// deleteChildren removes all descendants of an object or a container. It returns their
// keys.
func deleteChildren(ctx context.Context, tx *Tx, p berth.ProjectID, id string) (gone []int64, err error) {
	type child struct {
		id   string
		seal int64
	}
	for parents := []string{id}; len(parents) > 0; parents = parents[1:] {
		children, err := List(ctx, tx, `DELETE FROM objects WHERE project = $1 AND parent = $2 RETURNING id, seal`,
			in{p, parents[0]}, func(c *child) []any { return []any{&c.id, &c.seal} })
		if err != nil {
			return nil, err
		}
		for _, c := range children {
			parents = append(parents, c.id)
			gone = append(gone, c.seal)
		}
	}
	return gone, nil
}

func (d objects) ExpiredObjects(ctx context.Context, kind store.Kind, now time.Time, limit int) ([]store.ObjectRef,
	error) {
	refs, err := List(ctx, d.driver, `SELECT project, parent, id FROM objects WHERE kind = $1 AND expires_at <= $2
		ORDER BY expires_at LIMIT $3`, in{kind, now.Unix(), limit},
		func(r *store.ObjectRef) []any { return []any{&r.Project, &r.Parent, &r.ID} })
	for i := range refs {
		refs[i].Kind = kind
	}
	return refs, d.driver.Convert(err)
}

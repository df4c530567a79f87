package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

// A keptFile is a file as it is kept.
type keptFile struct {
	berth.File
	Key []byte `json:"key,omitempty"` // of its bytes
}

func (d *DB) CreateFile(ctx context.Context, p berth.ProjectID, f *berth.File, key []byte) error {
	k, err := d.keys.new()
	if err != nil {
		return err
	}
	body, err := k.sealJSON(boxBody, keptFile{*f, key})
	if err != nil {
		return err
	}
	row := query.CreateFileParams{ID: string(f.ID), Project: string(p), CreatedAt: f.CreatedAt, Purpose: f.Purpose, Bytes: f.Bytes, Body: body, Seal: k.number}
	if f.ExpiresAt != nil {
		row.ExpiresAt = sql.NullInt64{Int64: *f.ExpiresAt, Valid: true}
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error { return q.CreateFile(ctx, row) })
}

func (d *DB) GetFile(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error) {
	body, err := d.queries.GetFile(ctx, query.GetFileParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	return decode[berth.File](d, d.opener(), body)
}

func (d *DB) FileKey(ctx context.Context, p berth.ProjectID, id berth.FileID) ([]byte, error) {
	body, err := d.queries.GetFile(ctx, query.GetFileParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	kept, err := decode[keptFile](d, d.opener(), body)
	if err != nil {
		return nil, err
	}
	return kept.Key, nil
}

func (d *DB) ListFiles(ctx context.Context, p berth.ProjectID, purpose string, page store.Page) ([]*berth.File, bool, error) {
	from, err := start(page, func() (int64, error) {
		return d.queries.FileTime(ctx, query.FileTimeParams{ID: page.After, Project: string(p)})
	})
	if err != nil {
		return nil, false, d.wrap(err)
	}
	args := query.ListFilesDescendingParams{Project: string(p), Purpose: purpose, AfterTime: from, AfterID: page.After, N: int64(page.Limit) + 1}
	var rows [][]byte
	if page.Ascending {
		rows, err = d.queries.ListFilesAscending(ctx, query.ListFilesAscendingParams(args))
	} else {
		rows, err = d.queries.ListFilesDescending(ctx, args)
	}
	if err != nil {
		return nil, false, d.wrap(err)
	}
	files := make([]*berth.File, 0, min(len(rows), page.Limit))
	o := d.opener()
	for _, row := range rows[:cap(files)] {
		f, err := decode[berth.File](d, o, row)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, false, err
		}
		files = append(files, f)
	}
	return files, len(rows) > page.Limit, nil
}

func (d *DB) ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]store.FileRef, error) {
	rows, err := d.queries.ExpiredFiles(ctx, query.ExpiredFilesParams{Now: sql.NullInt64{Int64: now.Unix(), Valid: true}, N: int64(limit)})
	if err != nil {
		return nil, d.wrap(err)
	}
	refs := make([]store.FileRef, len(rows))
	for i, r := range rows {
		refs[i] = store.FileRef{Project: berth.ProjectID(r.Project), File: berth.FileID(r.ID)}
	}
	return refs, nil
}

func (d *DB) DeleteFile(ctx context.Context, p berth.ProjectID, id berth.FileID) error {
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) ([]int64, error) {
		n, err := q.DeleteFile(ctx, query.DeleteFileParams{ID: string(id), Project: string(p)})
		return []int64{n}, err
	})
}

// decode reads an object from the column of its body.
func decode[T any](d *DB, o *opener, body []byte) (*T, error) {
	v := new(T)
	if err := o.openJSON(boxBody, body, v); err != nil {
		return nil, d.damaged("", err)
	}
	return v, nil
}

// damaged says where an error is that opening and decoding what is stored gave.
func (d *DB) damaged(what string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return fmt.Errorf("sqlite: %s: %s%w", d.path, what, err)
}

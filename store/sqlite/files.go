package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d *DB) CreateFile(ctx context.Context, p berth.ProjectID, f *berth.File) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	row := query.CreateFileParams{ID: string(f.ID), Project: string(p), CreatedAt: f.CreatedAt, Purpose: f.Purpose, Bytes: f.Bytes, Body: body}
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
	return decode[berth.File](d, body)
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
	files := make([]*berth.File, min(len(rows), page.Limit))
	for i := range files {
		if files[i], err = decode[berth.File](d, rows[i]); err != nil {
			return nil, false, err
		}
	}
	return files, len(rows) > page.Limit, nil
}

func (d *DB) ExpiredFiles(ctx context.Context, now time.Time) ([]store.FileRef, error) {
	rows, err := d.queries.ExpiredFiles(ctx, sql.NullInt64{Int64: now.Unix(), Valid: true})
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
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.DeleteFile(ctx, query.DeleteFileParams{ID: string(id), Project: string(p)}))
	})
}

// decode reads an object from its column.
func decode[T any](d *DB, body []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("sqlite: %s: %w", d.path, err)
	}
	return v, nil
}

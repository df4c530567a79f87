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

func (d files) CreateFile(ctx context.Context, p berth.ProjectID, f *berth.File, key []byte) error {
	k, err := d.keys.New(ctx)
	if err != nil {
		return err
	}
	body, err := k.File(f, key)
	if err != nil {
		return err
	}
	row := query.CreateFileParams{ID: string(f.ID), Project: string(p), CreatedAt: f.CreatedAt, Purpose: f.Purpose,
		Bytes: f.Bytes, Body: body, Seal: k.Number()}
	if f.ExpiresAt != nil {
		row.ExpiresAt = sql.NullInt64{Int64: *f.ExpiresAt, Valid: true}
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error { return q.CreateFile(ctx, row) })
}

func (d files) GetFile(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, []byte, error) {
	body, err := d.queries.GetFile(ctx, query.GetFileParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, nil, d.wrap(err)
	}
	f, key, err := d.keys.Opener().File(ctx, body)
	if err != nil {
		return nil, nil, d.damaged("file "+string(id)+": ", err)
	}
	return f, key, nil
}

func (d files) ListFiles(ctx context.Context, p berth.ProjectID, purpose string, page store.Page) ([]*berth.File, bool,
	error) {
	from, err := start(page, func() (int64, error) {
		return d.queries.FileTime(ctx, query.FileTimeParams{ID: page.After, Project: string(p)})
	})
	if err != nil {
		return nil, false, d.wrap(err)
	}
	args := query.ListFilesDescendingParams{Project: string(p), Purpose: purpose, AfterTime: from, AfterID: page.After,
		N: int64(page.Limit) + 1}
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
	o := d.keys.Opener()
	for _, row := range rows[:cap(files)] {
		f, _, err := o.File(ctx, row)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, false, d.damaged("", err)
		}
		files = append(files, f)
	}
	return files, len(rows) > page.Limit, nil
}

func (d files) ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]store.FileRef, error) {
	rows, err := d.queries.ExpiredFiles(ctx,
		query.ExpiredFilesParams{Now: sql.NullInt64{Int64: now.Unix(), Valid: true}, N: int64(limit)})
	if err != nil {
		return nil, d.wrap(err)
	}
	refs := make([]store.FileRef, len(rows))
	for i, r := range rows {
		refs[i] = store.FileRef{Project: berth.ProjectID(r.Project), File: berth.FileID(r.ID)}
	}
	return refs, nil
}

func (d files) DeleteFile(ctx context.Context, p berth.ProjectID, id berth.FileID) error {
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) ([]int64, error) {
		n, err := q.DeleteFile(ctx, query.DeleteFileParams{ID: string(id), Project: string(p)})
		return []int64{n}, err
	})
}

// damaged wraps an error of opening or decoding stored content with its location.
func (d *core) damaged(what string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return store.ErrNotFound
	}
	return fmt.Errorf("sqlite: %s: %s%w", d.path, what, err)
}

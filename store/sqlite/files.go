package sqlite

import (
	"context"
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d *DB) CreateFile(ctx context.Context, p berth.ProjectID, f *berth.File) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.CreateFile(ctx, query.CreateFileParams{ID: string(f.ID), Project: string(p), CreatedAt: f.CreatedAt, Purpose: f.Purpose, Body: body})
	})
}

func (d *DB) GetFile(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error) {
	body, err := d.queries.GetFile(ctx, query.GetFileParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, wrap(err)
	}
	f := new(berth.File)
	return f, json.Unmarshal(body, f)
}

func (d *DB) ListFiles(ctx context.Context, p berth.ProjectID, purpose string, page store.Page) ([]*berth.File, bool, error) {
	args := query.ListFilesDescendingParams{Project: string(p), Purpose: purpose, AfterID: page.After, N: int64(page.Limit) + 1}
	var err error
	if page.After != "" {
		if args.AfterTime, err = d.queries.FileTime(ctx, query.FileTimeParams{ID: page.After, Project: string(p)}); err != nil {
			return nil, false, wrap(err)
		}
	}
	var rows [][]byte
	if page.Ascending {
		rows, err = d.queries.ListFilesAscending(ctx, query.ListFilesAscendingParams(args))
	} else {
		rows, err = d.queries.ListFilesDescending(ctx, args)
	}
	if err != nil {
		return nil, false, err
	}
	more := len(rows) > page.Limit
	files := make([]*berth.File, min(len(rows), page.Limit))
	for i := range files {
		if err := json.Unmarshal(rows[i], &files[i]); err != nil {
			return nil, false, err
		}
	}
	return files, more, nil
}

func (d *DB) DeleteFile(ctx context.Context, p berth.ProjectID, id berth.FileID) error {
	defer d.deleted()
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.DeleteFile(ctx, query.DeleteFileParams{ID: string(id), Project: string(p)}))
	})
}

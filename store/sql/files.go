package sql

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
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
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.Run(ctx, `INSERT INTO files (id, project, created_at, expires_at, purpose, bytes, body, seal)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			f.ID, p, f.CreatedAt, f.ExpiresAt, f.Purpose, f.Bytes, body, k.Number())
	})
}

func (d files) GetFile(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, []byte, error) {
	var body []byte
	if err := d.read(ctx, `SELECT body FROM files WHERE id = $1 AND project = $2`, in{id, p}, &body); err != nil {
		return nil, nil, err
	}
	f, key, err := d.keys.Opener().File(ctx, body)
	if err != nil {
		return nil, nil, d.damaged("file "+string(id)+": ", err)
	}
	return f, key, nil
}

// Pages of a project's files, of any purpose if $2 is empty.
const (
	selectFiles    = `SELECT body FROM files WHERE project = $1 AND ($2 = '' OR purpose = $2) AND (created_at, id)`
	filesAscending = selectFiles + ` > ($3, $4) ORDER BY created_at, id LIMIT $5`
	filesBackwards = selectFiles + ` < ($3, $4) ORDER BY created_at DESC, id DESC LIMIT $5`
)

func (d files) ListFiles(ctx context.Context, p berth.ProjectID, purpose string, page store.Page) ([]*berth.File, bool,
	error) {
	from, err := d.start(ctx, `SELECT created_at FROM files WHERE id = $1 AND project = $2`, p, page)
	if err != nil {
		return nil, false, err
	}
	text := filesBackwards
	if page.Ascending {
		text = filesAscending
	}
	rows, err := Column[[]byte](ctx, d.driver, text, p, purpose, from, page.After, page.Limit+1)
	if err != nil {
		return nil, false, d.driver.Convert(err)
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
	refs, err := List(ctx, d.driver, `SELECT project, id FROM files WHERE expires_at <= $1
		ORDER BY expires_at, id LIMIT $2`, in{now.Unix(), limit},
		func(r *store.FileRef) []any { return []any{&r.Project, &r.File} })
	return refs, d.driver.Convert(err)
}

func (d files) FileBytes(ctx context.Context, p berth.ProjectID) (n int64, err error) {
	err = d.read(ctx, `SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM files WHERE project = $1`, in{p}, &n)
	return n, err
}

func (d files) DeleteFile(ctx context.Context, p berth.ProjectID, id berth.FileID) error {
	return d.erase(ctx, func(ctx context.Context, tx *Tx) ([]int64, error) {
		var seal int64
		err := Read(ctx, tx, `DELETE FROM files WHERE id = $1 AND project = $2 RETURNING seal`, in{id, p}, &seal)
		return []int64{seal}, err
	})
}

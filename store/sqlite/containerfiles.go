package sqlite

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d *DB) PutContainerFile(ctx context.Context, p berth.ProjectID, f *berth.ContainerFile) error {
	var row query.PutContainerFileRow
	err := d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := hasContainer(ctx, q, p, f.ContainerID); err != nil {
			return err
		}
		var err error
		row, err = q.PutContainerFile(ctx, query.PutContainerFileParams{Container: string(f.ContainerID), Path: f.Path,
			ID: string(f.ID), CreatedAt: f.CreatedAt, Source: f.Source, Bytes: f.Bytes})
		return err
	})
	if err == nil {
		f.ID, f.CreatedAt, f.Source = berth.CFileID(row.ID), row.CreatedAt, row.Source
	}
	return err
}

func hasContainer(ctx context.Context, q *query.Queries, p berth.ProjectID, id berth.ContainerID) error {
	n, err := q.ContainerExists(ctx, query.ContainerExistsParams{ID: string(id), Project: string(p)})
	return found(n, err)
}

func (d *DB) GetContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID, id berth.CFileID) (*berth.ContainerFile, error) {
	row, err := d.queries.GetContainerFile(ctx, query.GetContainerFileParams{Container: string(c), ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	return containerFile(c, query.ContainerFilesRow{ID: string(id), Path: row.Path, CreatedAt: row.CreatedAt, Source: row.Source, Bytes: row.Bytes}), nil
}

func containerFile(c berth.ContainerID, row query.ContainerFilesRow) *berth.ContainerFile {
	return &berth.ContainerFile{ID: berth.CFileID(row.ID), Object: "container.file", ContainerID: c, CreatedAt: row.CreatedAt,
		Bytes: row.Bytes, Path: row.Path, Source: row.Source}
}

func (d *DB) ContainerFiles(ctx context.Context, p berth.ProjectID, c berth.ContainerID) ([]*berth.ContainerFile, error) {
	if err := hasContainer(ctx, d.queries, p, c); err != nil {
		return nil, d.wrap(err)
	}
	rows, err := d.queries.ContainerFiles(ctx, string(c))
	if err != nil {
		return nil, d.wrap(err)
	}
	files := make([]*berth.ContainerFile, len(rows))
	for i, r := range rows {
		files[i] = containerFile(c, r)
	}
	return files, nil
}

func (d *DB) DeleteContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID, id berth.CFileID) error {
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.DeleteContainerFile(ctx, query.DeleteContainerFileParams{Container: string(c), ID: string(id), Project: string(p)}))
	})
}

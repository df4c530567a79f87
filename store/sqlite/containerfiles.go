package sqlite

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/sealed"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d containers) PutContainerFile(ctx context.Context, p berth.ProjectID, f *berth.ContainerFile) error {
	var row query.PutContainerFileRow
	err := d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		n, err := q.ContainerSeal(ctx, query.ContainerSealParams{ID: string(f.ContainerID), Project: string(p)})
		if err != nil {
			return err
		}
		key, err := d.keys.Get(ctx, n)
		if err != nil {
			return err
		}
		hidden, box := key.Path(f.Path)
		row, err = q.PutContainerFile(ctx, query.PutContainerFileParams{Container: string(f.ContainerID), Path: hidden,
			ID: string(f.ID), CreatedAt: f.CreatedAt, Source: f.Source, Bytes: f.Bytes, Box: box})
		return err
	})
	if err == nil {
		f.ID, f.CreatedAt, f.Source = berth.CFileID(row.ID), row.CreatedAt, row.Source
	}
	return err
}

func (d containers) GetContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID,
	id berth.CFileID) (*berth.ContainerFile, error) {
	row, err := d.queries.GetContainerFile(ctx, query.GetContainerFileParams{Container: string(c), ID: string(id),
		Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	f, err := containerFile(ctx, d.keys.Opener(), c, query.ContainerFilesRow{ID: string(id), Path: row.Path,
		CreatedAt: row.CreatedAt, Source: row.Source, Bytes: row.Bytes, Box: row.Box})
	return f, d.wrap(err)
}

func containerFile(ctx context.Context, o *sealed.Opener, c berth.ContainerID,
	row query.ContainerFilesRow) (*berth.ContainerFile, error) {
	path, err := o.Path(ctx, row.Path, row.Box)
	if err != nil {
		return nil, err
	}
	return &berth.ContainerFile{ID: berth.CFileID(row.ID), Object: "container.file", ContainerID: c,
		CreatedAt: row.CreatedAt,
		Bytes:     row.Bytes, Path: path, Source: row.Source}, nil
}

func (d containers) ContainerFiles(ctx context.Context, p berth.ProjectID, c berth.ContainerID) ([]*berth.ContainerFile,
	error) {
	if _, err := d.queries.ContainerSeal(ctx, query.ContainerSealParams{ID: string(c),
		Project: string(p)}); err != nil {
		return nil, d.wrap(err)
	}
	rows, err := d.queries.ContainerFiles(ctx, string(c))
	if err != nil {
		return nil, d.wrap(err)
	}
	files := make([]*berth.ContainerFile, len(rows))
	o := d.keys.Opener()
	for i, r := range rows {
		if files[i], err = containerFile(ctx, o, c, r); err != nil {
			return nil, d.wrap(err)
		}
	}
	return files, nil
}

func (d containers) DeleteContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID,
	id berth.CFileID) error {
	// its path is sealed with the container's key
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.DeleteContainerFile(ctx, query.DeleteContainerFileParams{Container: string(c), ID: string(id),
			Project: string(p)}))
	})
}

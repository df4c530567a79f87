package sql

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/sealed"
)

// containerSeal reads the key of a container and its files.
const containerSeal = `SELECT seal FROM containers WHERE id = $1 AND project = $2`

func (d containers) PutContainerFile(ctx context.Context, p berth.ProjectID, f *berth.ContainerFile) error {
	saved := *f
	err := d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		var seal int64
		if err := Read(ctx, tx, containerSeal, in{f.ContainerID, p}, &seal); err != nil {
			return err
		}
		key, err := d.keys.Get(ctx, seal)
		if err != nil {
			return err
		}
		hidden, box := key.Path(f.Path)
		return Read(ctx, tx, `INSERT INTO container_files (container, path, id, created_at, source, bytes, box)
			VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (container, path) DO UPDATE SET bytes = excluded.bytes,
				source = CASE WHEN excluded.source = 'user' THEN 'user' ELSE container_files.source END
			RETURNING id, created_at, source`,
			in{f.ContainerID, hidden, f.ID, f.CreatedAt, f.Source, f.Bytes, box},
			&saved.ID, &saved.CreatedAt, &saved.Source)
	})
	if err == nil {
		*f = saved
	}
	return err
}

// A fileRow is a row of container_files.
type fileRow struct {
	berth.ContainerFile // without Path
	hidden              string
	box                 []byte
}

func (r *fileRow) columns() []any {
	return []any{&r.ID, &r.CreatedAt, &r.Source, &r.Bytes, &r.hidden, &r.box}
}

func (r *fileRow) open(ctx context.Context, o *sealed.Opener, c berth.ContainerID) (*berth.ContainerFile, error) {
	path, err := o.Path(ctx, r.hidden, r.box)
	if err != nil {
		return nil, err
	}
	f := r.ContainerFile
	f.Object, f.ContainerID, f.Path = "container.file", c, path
	return &f, nil
}

func (d containers) GetContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID,
	id berth.CFileID) (*berth.ContainerFile, error) {
	var r fileRow
	if err := d.read(ctx, `SELECT f.id, f.created_at, f.source, f.bytes, f.path, f.box
		FROM container_files f JOIN containers c ON c.id = f.container
		WHERE f.container = $1 AND f.id = $2 AND c.project = $3`, in{c, id, p}, r.columns()...); err != nil {
		return nil, err
	}
	return r.open(ctx, d.keys.Opener(), c)
}

func (d containers) ContainerFiles(ctx context.Context, p berth.ProjectID, c berth.ContainerID) ([]*berth.ContainerFile,
	error) {
	var seal int64
	if err := d.read(ctx, containerSeal, in{c, p}, &seal); err != nil {
		return nil, err
	}
	rows, err := List(ctx, d.driver, `SELECT id, created_at, source, bytes, path, box FROM container_files
		WHERE container = $1 ORDER BY created_at, id`, in{c}, (*fileRow).columns)
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	files := make([]*berth.ContainerFile, len(rows))
	o := d.keys.Opener()
	for i := range rows {
		if files[i], err = rows[i].open(ctx, o, c); err != nil {
			return nil, d.driver.Convert(err)
		}
	}
	return files, nil
}

func (d containers) DeleteContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID,
	id berth.CFileID) error {
	// its path is sealed with the container's key
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.Change(ctx, `DELETE FROM container_files
			WHERE container_files.container = $1 AND container_files.id = $2
				AND EXISTS (SELECT 1 FROM containers c WHERE c.id = container_files.container AND c.project = $3)`,
			c, id, p)
	})
}

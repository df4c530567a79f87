package sqlite

import (
	"context"
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d *DB) CreateContainer(ctx context.Context, c *store.Container) error {
	body, err := json.Marshal(c.Body)
	if err != nil {
		return err
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.CreateContainer(ctx, query.CreateContainerParams{ID: string(c.Body.ID), Project: string(c.Project),
			CreatedAt: c.Body.CreatedAt, Name: c.Body.Name, Status: string(c.Body.Status), Body: body})
	})
}

func (d *DB) GetContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*store.Container, error) {
	return getContainer(ctx, d.queries, p, id)
}

func getContainer(ctx context.Context, q *query.Queries, p berth.ProjectID, id berth.ContainerID) (*store.Container, error) {
	body, err := q.GetContainer(ctx, query.GetContainerParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, wrap(err)
	}
	return container(string(p), body)
}

func container(p string, body []byte) (*store.Container, error) {
	c := &store.Container{Project: berth.ProjectID(p)}
	return c, json.Unmarshal(body, &c.Body)
}

func (d *DB) ListContainers(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*store.Container, bool, error) {
	args := query.ListContainersDescendingParams{Project: string(p), Name: name, AfterID: page.After, N: int64(page.Limit) + 1}
	var err error
	if page.After != "" {
		if args.AfterTime, err = d.queries.ContainerTime(ctx, query.ContainerTimeParams{ID: page.After, Project: string(p)}); err != nil {
			return nil, false, wrap(err)
		}
	}
	var all []*store.Container
	if page.Ascending {
		rows, err := d.queries.ListContainersAscending(ctx, query.ListContainersAscendingParams(args))
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			c, err := container(r.Project, r.Body)
			if err != nil {
				return nil, false, err
			}
			all = append(all, c)
		}
	} else {
		rows, err := d.queries.ListContainersDescending(ctx, args)
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			c, err := container(r.Project, r.Body)
			if err != nil {
				return nil, false, err
			}
			all = append(all, c)
		}
	}
	return all[:min(len(all), page.Limit)], len(all) > page.Limit, nil
}

func (d *DB) UpdateContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID, change func(*berth.Container) error) (*store.Container, error) {
	var out *store.Container
	err := d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		c, err := getContainer(ctx, q, p, id)
		if err != nil {
			return err
		}
		if err := change(c.Body); err != nil {
			return err
		}
		body, err := json.Marshal(c.Body)
		if err != nil {
			return err
		}
		out = c
		return q.UpdateContainer(ctx, query.UpdateContainerParams{Name: c.Body.Name, Status: string(c.Body.Status), Body: body, ID: string(id)})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (d *DB) DeleteContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	defer d.deleted()
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := found(q.DeleteContainer(ctx, query.DeleteContainerParams{ID: string(id), Project: string(p)})); err != nil {
			return err
		}
		return q.DeleteContainerFiles(ctx, string(id))
	})
}

func (d *DB) RunningContainers(ctx context.Context) ([]*store.Container, error) {
	rows, err := d.queries.RunningContainers(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*store.Container, len(rows))
	for i, r := range rows {
		if all[i], err = container(r.Project, r.Body); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (d *DB) PutContainerFile(ctx context.Context, p berth.ProjectID, f *berth.ContainerFile) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if _, err := getContainer(ctx, q, p, f.ContainerID); err != nil {
			return err
		}
		row, err := q.PutContainerFile(ctx, query.PutContainerFileParams{Container: string(f.ContainerID), Path: f.Path,
			ID: string(f.ID), CreatedAt: f.CreatedAt, Source: f.Source, Bytes: f.Bytes})
		if err != nil {
			return err
		}
		f.ID, f.CreatedAt, f.Source = berth.CFileID(row.ID), row.CreatedAt, row.Source
		return nil
	})
}

func (d *DB) GetContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID, id berth.CFileID) (*berth.ContainerFile, error) {
	if _, err := d.GetContainer(ctx, p, c); err != nil {
		return nil, err
	}
	row, err := d.queries.GetContainerFile(ctx, query.GetContainerFileParams{Container: string(c), ID: string(id)})
	if err != nil {
		return nil, wrap(err)
	}
	return &berth.ContainerFile{ID: id, Object: "container.file", ContainerID: c, CreatedAt: row.CreatedAt, Bytes: row.Bytes, Path: row.Path, Source: row.Source}, nil
}

func (d *DB) ContainerFiles(ctx context.Context, p berth.ProjectID, c berth.ContainerID) ([]*berth.ContainerFile, error) {
	if _, err := d.GetContainer(ctx, p, c); err != nil {
		return nil, err
	}
	rows, err := d.queries.ContainerFiles(ctx, string(c))
	if err != nil {
		return nil, err
	}
	files := make([]*berth.ContainerFile, len(rows))
	for i, r := range rows {
		files[i] = &berth.ContainerFile{ID: berth.CFileID(r.ID), Object: "container.file", ContainerID: c, CreatedAt: r.CreatedAt, Bytes: r.Bytes, Path: r.Path, Source: r.Source}
	}
	return files, nil
}

func (d *DB) DeleteContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID, id berth.CFileID) error {
	if _, err := d.GetContainer(ctx, p, c); err != nil {
		return err
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.DeleteContainerFile(ctx, query.DeleteContainerFileParams{Container: string(c), ID: string(id)}))
	})
}

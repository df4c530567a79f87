package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d containers) CreateContainer(ctx context.Context, c *store.Container, also ...*store.Object) error {
	key, err := d.keys.New(ctx)
	if err != nil {
		return err
	}
	body, err := key.Container(c.Body)
	if err != nil {
		return err
	}
	row := query.CreateContainerParams{ID: string(c.Body.ID), Project: string(c.Project), CreatedAt: c.Body.CreatedAt,
		Name: d.keys.HideName(c.Project, c.Body.Name), Status: string(c.Body.Status), Body: body, Seal: key.Number(),
		Key: string(c.Key), MemoryLimit: c.Body.MemoryLimit, CountedUntil: c.Body.CreatedAt}
	if c.Body.Berth.UniqueName {
		row.UniqueName = 1
	}
	objects, err := d.objectRows(ctx, c.Project, also)
	if err != nil {
		return err
	}
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := q.CreateContainer(ctx, row); err != nil {
			return err
		}
		if err := createObjects(ctx, q, objects); err != nil {
			return err
		}
		return addUsage(ctx, q, store.CreatedUsage(c, time.Now()))
	})
}

func (d containers) GetContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*store.Container,
	error) {
	body, err := d.queries.GetContainer(ctx, query.GetContainerParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	return d.container(ctx, d.keys.Opener(), p, body)
}

func (d containers) container(ctx context.Context, o *sealed.Opener, p berth.ProjectID, box []byte) (*store.Container,
	error) {
	c, err := o.Container(ctx, box)
	if err != nil {
		return nil, d.damaged("", err)
	}
	return &store.Container{Project: p, Body: c}, nil
}

func (d containers) ListContainers(ctx context.Context, p berth.ProjectID, name string,
	page store.Page) ([]*store.Container, bool, error) {
	from, err := start(page, func() (int64, error) {
		return d.queries.ContainerTime(ctx, query.ContainerTimeParams{ID: page.After, Project: string(p)})
	})
	if err != nil {
		return nil, false, d.wrap(err)
	}
	args := query.ListContainersDescendingParams{Project: string(p), Name: name, Hidden: d.keys.HideName(p, name),
		AfterTime: from, AfterID: page.After, N: int64(page.Limit) + 1}
	var rows [][]byte
	if page.Ascending {
		rows, err = d.queries.ListContainersAscending(ctx, query.ListContainersAscendingParams(args))
	} else {
		rows, err = d.queries.ListContainersDescending(ctx, args)
	}
	if err != nil {
		return nil, false, d.wrap(err)
	}
	all := make([]*store.Container, 0, min(len(rows), page.Limit))
	o := d.keys.Opener()
	for _, row := range rows[:cap(all)] {
		c, err := d.container(ctx, o, p, row)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, false, err
		}
		all = append(all, c)
	}
	return all, len(rows) > page.Limit, nil
}

func (d containers) UpdateContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	change func(*berth.Container) error) (*store.Container, error) {
	var out *store.Container
	err := d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		box, err := q.GetContainer(ctx, query.GetContainerParams{ID: string(id), Project: string(p)})
		if err != nil {
			return err
		}
		o := d.keys.Opener()
		c, err := d.container(ctx, o, p, box)
		if err != nil {
			return err
		}
		if err := change(c.Body); err != nil {
			return err
		}
		body, err := o.Key().Container(c.Body)
		if err != nil {
			return err
		}
		if c.Body.Status != berth.ContainerRunning {
			if err := countContainer(ctx, q, p, id); err != nil {
				return err
			}
		}
		out = c
		return q.UpdateContainer(ctx, query.UpdateContainerParams{Name: d.keys.HideName(p, c.Body.Name),
			Status: string(c.Body.Status), Body: body, ID: string(id)})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (d containers) DeleteContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	return d.erase(ctx, func(ctx context.Context, q *query.Queries) ([]int64, error) { // including those of its files
		if err := countContainer(ctx, q, p, id); err != nil {
			return nil, err
		}
		n, err := q.DeleteContainer(ctx, query.DeleteContainerParams{ID: string(id), Project: string(p)})
		if err != nil {
			return nil, err
		}
		gone, err := deleteChildren(ctx, q, p, string(id))
		return append(gone, n), err
	})
}

func (d containers) RunningContainers(ctx context.Context) ([]*store.Container, error) {
	rows, err := d.queries.RunningContainers(ctx)
	if err != nil {
		return nil, d.wrap(err)
	}
	all := make([]*store.Container, 0, len(rows))
	o := d.keys.Opener()
	for _, r := range rows {
		c, err := d.container(ctx, o, berth.ProjectID(r.Project), r.Body)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

package sql

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
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
	objects, err := d.objectRows(ctx, c.Project, also)
	if err != nil {
		return err
	}
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		tx.touch(string(c.Body.ID))
		if err := tx.Run(ctx, `INSERT INTO containers (id, project, created_at, name, status, body, key,
				memory_limit, counted_until, seal, unique_name)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			c.Body.ID, c.Project, c.Body.CreatedAt, d.keys.HideName(c.Project, c.Body.Name), c.Body.Status, body,
			c.Key, c.Body.MemoryLimit, c.Body.CreatedAt, key.Number(), c.Body.Berth.UniqueName); err != nil {
			return err
		}
		if err := createObjects(ctx, tx, objects); err != nil {
			return err
		}
		return addUsage(ctx, tx, store.CreatedUsage(c, time.Now()))
	})
}

// selectContainer reads a container.
const selectContainer = `SELECT body FROM containers WHERE id = $1 AND project = $2`

func (d containers) GetContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*store.Container,
	error) {
	var box []byte
	if err := d.read(ctx, selectContainer, in{id, p}, &box); err != nil {
		return nil, err
	}
	return d.container(ctx, d.keys.Opener(), p, box)
}

func (d containers) container(ctx context.Context, o *sealed.Opener, p berth.ProjectID, box []byte) (*store.Container,
	error) {
	c, err := o.Container(ctx, box)
	if err != nil {
		return nil, d.damaged("", err)
	}
	return &store.Container{Project: p, Body: c}, nil
}

// Pages of a project's containers, of any name if $2 is empty. $3 is the hidden name. Rows that were
// written before sealing have their name in the clear.
const (
	selectContainers = `SELECT body FROM containers
		WHERE project = $1 AND ($2 = '' OR name = $3 OR seal = 0 AND name = $2) AND (created_at, id)`
	containersAscending = selectContainers + ` > ($4, $5) ORDER BY created_at, id LIMIT $6`
	containersBackwards = selectContainers + ` < ($4, $5) ORDER BY created_at DESC, id DESC LIMIT $6`
)

func (d containers) ListContainers(ctx context.Context, p berth.ProjectID, name string,
	page store.Page) ([]*store.Container, bool, error) {
	from, err := d.start(ctx, `SELECT created_at FROM containers WHERE id = $1 AND project = $2`, p, page)
	if err != nil {
		return nil, false, err
	}
	text := containersBackwards
	if page.Ascending {
		text = containersAscending
	}
	rows, err := Column[[]byte](ctx, d.driver, text, p, name, d.keys.HideName(p, name), from, page.After, page.Limit+1)
	if err != nil {
		return nil, false, d.driver.Convert(err)
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
	err := d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		tx.touch(string(id))
		var box []byte
		if err := Read(ctx, tx, selectContainer, in{id, p}, &box); err != nil {
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
			if err := countContainer(ctx, tx, p, id); err != nil {
				return err
			}
		}
		out = c
		return tx.Run(ctx, `UPDATE containers SET name = $1, status = $2, body = $3 WHERE id = $4`,
			d.keys.HideName(p, c.Body.Name), c.Body.Status, body, id)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (d containers) DeleteContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	return d.erase(ctx, func(ctx context.Context, tx *Tx) ([]int64, error) { // including those of its files
		tx.touch(string(id))
		if err := countContainer(ctx, tx, p, id); err != nil {
			return nil, err
		}
		var seal int64
		if err := Read(ctx, tx, `DELETE FROM containers WHERE id = $1 AND project = $2 RETURNING seal`,
			in{id, p}, &seal); err != nil {
			return nil, err
		}
		gone, err := deleteChildren(ctx, tx, p, string(id))
		return append(gone, seal), err
	})
}

func (d containers) RunningContainers(ctx context.Context) ([]*store.Container, error) {
	type row struct {
		project berth.ProjectID
		box     []byte
	}
	rows, err := List(ctx, d.driver, `SELECT project, body FROM containers WHERE status = 'running' ORDER BY id`, nil,
		func(r *row) []any { return []any{&r.project, &r.box} })
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	all := make([]*store.Container, 0, len(rows))
	o := d.keys.Opener()
	for _, r := range rows {
		c, err := d.container(ctx, o, r.project, r.box)
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

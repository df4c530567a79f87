package sql

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
)

// HideNames hides the names of containers with the keys of a rotation, and saves its mark.
func (c *core) HideNames(ctx context.Context, tx *Tx, r *sealed.Rotation) error {
	type named struct {
		id      berth.ContainerID
		project berth.ProjectID
	}
	rows, err := List(ctx, tx, `SELECT id, project FROM containers WHERE name <> '' AND seal <> 0`, nil,
		func(n *named) []any { return []any{&n.id, &n.project} })
	if err != nil {
		return fmt.Errorf("list names: %w", err)
	}
	o := c.keys.Opener()
	for _, row := range rows {
		var box []byte
		if err := Read(ctx, tx, `SELECT body FROM containers WHERE id = $1`, []any{row.id}, &box); err != nil {
			return fmt.Errorf("read container %s: %w", row.id, err)
		}
		body, err := o.Container(ctx, box)
		if errors.Is(err, store.ErrNotFound) {
			continue // its key is erased; so will it be
		}
		if err != nil {
			return fmt.Errorf("open container %s: %w", row.id, err)
		}
		err = tx.Run(ctx, `UPDATE containers SET name = $1 WHERE id = $2`, r.HideName(row.project, body.Name), row.id)
		if err != nil {
			return fmt.Errorf("rename container %s: %w", row.id, err)
		}
	}
	return tx.Run(ctx, `UPDATE ring SET mark = $1`, r.Mark())
}

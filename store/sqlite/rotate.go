package sqlite

import (
	"context"
	"errors"

	base "github.com/berth-run/berth/store/sql"
)

// RotateKey re-seals the keys of all rows with another server's key, while the database is in use. If it
// returns an error, nothing changed; otherwise, only the new key opens the database. Writes wait for it. No
// other process may use the database. after, if not nil, is called after each step; an error before the
// commit ends the rotation.
func (d *DB) RotateKey(ctx context.Context, root [32]byte, after func(step string) error) error {
	if after == nil {
		after = func(string) error { return nil }
	}
	r, err := d.core.keys.RotateFile(root)
	if err != nil {
		return d.core.Convert(err)
	}
	w := d.core.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	change := func(ctx context.Context, tx *base.Tx) error {
		if err := d.HideNames(ctx, tx, r.Rotation); err != nil {
			return err
		}
		return errors.Join(after("mark replaced"), r.Copy(), after("keys copied"))
	}
	if err := w.transact([]*base.Write{{Context: ctx, Do: change}}); err != nil {
		return d.core.Convert(errors.Join(err, r.Abort()))
	}
	// From here on, only the new key opens the database. The former keys are erased when that is durable.
	err = errors.Join(d.core.Sync(), after("committed"))
	if err := errors.Join(err, r.Commit(), after("keys replaced")); err != nil {
		d.core.log.Error("failed to erase the keys that a former server's key seals; the next start erases them",
			"err", err)
	}
	return nil
}

package sqlite

import (
	"context"
	"database/sql"

	"github.com/berth-run/berth/store/sqlite/query"
)

// maxBatch is how many writes share a transaction at most.
const maxBatch = 256

// A write waits for its place in a transaction.
type write struct {
	ctx  context.Context
	do   func(ctx context.Context, q *query.Queries) error
	err  error
	done chan struct{}
}

// update runs do in a transaction, together with what others write at the same
// time. When it returns nil, the transaction has been committed. do may be called
// more than once, and the last call counts.
func (d *DB) update(ctx context.Context, do func(context.Context, *query.Queries) error) error {
	w := &write{ctx: ctx, do: do, done: make(chan struct{})}
	select {
	case d.writes <- w:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.closed:
		return sql.ErrConnDone
	}
	select {
	case <-w.done: // not before: nobody would know what was saved
		return wrap(w.err)
	case <-d.closed:
		select {
		case <-w.done:
			return wrap(w.err)
		default:
			return sql.ErrConnDone
		}
	}
}

// commitWrites takes what is waiting, as one transaction at a time.
func (d *DB) commitWrites() {
	for {
		select {
		case <-d.closed:
			return
		case w := <-d.writes:
			batch := []*write{w}
			for more := true; more && len(batch) < maxBatch; {
				select {
				case w := <-d.writes:
					batch = append(batch, w)
				default:
					more = false
				}
			}
			d.commit(batch)
			for _, w := range batch {
				close(w.done)
			}
		}
	}
}

// commit runs a batch in one transaction. If that fails as a whole, each write
// gets one of its own.
func (d *DB) commit(batch []*write) {
	ctx := context.Background()
	err := d.transact(ctx, batch)
	if err == nil {
		return
	}
	for _, w := range batch {
		if len(batch) > 1 {
			err = d.transact(ctx, []*write{w})
		}
		if err != nil && w.err == nil {
			w.err = err
		}
	}
}

// transact runs writes in a transaction. A write that fails is undone alone.
func (d *DB) transact(ctx context.Context, batch []*write) error {
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	q := d.writer.WithTx(tx)
	for _, w := range batch {
		if w.err = w.ctx.Err(); w.err != nil {
			continue
		}
		if len(batch) == 1 {
			if w.err = w.do(ctx, q); w.err != nil {
				return nil // rolled back
			}
			continue
		}
		if _, err := tx.ExecContext(ctx, "SAVEPOINT w"); err != nil {
			return err
		}
		undo := "RELEASE w"
		if w.err = w.do(ctx, q); w.err != nil {
			undo = "ROLLBACK TO w; RELEASE w"
		}
		if _, err := tx.ExecContext(ctx, undo); err != nil {
			return err
		}
	}
	return tx.Commit()
}

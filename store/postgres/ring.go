package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
	base "github.com/berth-run/berth/store/sql"
)

const (
	// mostSpare is the most keys that a server creates at a time. It starts with few, for
	// commands that need no more.
	mostSpare = 256
	// keyBlock is the number of consecutive keys that are read at a time: rows that were
	// created together are often read together.
	keyBlock = 64
	// keyLife is how long a key is cached, at least. It is cached for at most twice that
	// while others are read.
	keyLife = 30 * time.Second
	// mostCached is the number of keys in each half of the cache.
	mostCached = 16 << 10
)

// A tableRing is a sealed.Ring in the database, which all servers share. The keys are
// wrapped with the servers' key.
type tableRing struct {
	*core
	wrapper sealed.Wrapper
	id      [16]byte
	mark    []byte // of the keys; a ring with another one makes no keys

	creating sync.Mutex // guards spare and size; held while keys are created
	spare    []rowKey   // created and unused
	size     int        // of the last spare

	mu         sync.Mutex // guards what follows; never held during a write, which may need Get
	young, old map[int64][32]byte
	turned     time.Time // when young was empty
}

type rowKey struct {
	number int64
	key    [32]byte
}

func (r *tableRing) Name() string { return "the database" }

func (r *tableRing) ID() [16]byte { return r.id }

// New implements sealed.Ring.
func (r *tableRing) New(ctx context.Context) (int64, [32]byte, error) {
	r.creating.Lock()
	defer r.creating.Unlock()
	if len(r.spare) == 0 {
		r.size = min(max(8, 4*r.size), mostSpare)
		created, err := r.create(ctx, r.size)
		if err != nil {
			return 0, [32]byte{}, err
		}
		r.spare = created
	}
	one := r.spare[0]
	r.spare = r.spare[1:]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cacheLocked(one.number, one.key)
	return one.number, one.key, nil
}

// create creates keys.
func (r *tableRing) create(ctx context.Context, n int) (created []rowKey, err error) {
	err = r.Update(ctx, func(ctx context.Context, tx *base.Tx) error {
		var mark []byte
		if err := base.Read(ctx, tx, `SELECT mark FROM ring`, nil, &mark); err != nil {
			return err
		}
		if !hmac.Equal(mark, r.mark) {
			return errOtherKey // the server's key was rotated, perhaps by another process
		}
		numbers, err := base.Column[int64](ctx, tx,
			`SELECT nextval('row_key_numbers') FROM generate_series(1, $1::bigint)`, n)
		if err != nil {
			return err
		}
		created = make([]rowKey, len(numbers))
		for i, number := range numbers {
			created[i].number = number
			rand.Read(created[i].key[:])
		}
		return r.save(ctx, tx, created)
	})
	return created, err
}

// save stores keys.
func (r *tableRing) save(ctx context.Context, tx *base.Tx, keys []rowKey) error {
	numbers, boxes := make([]int64, len(keys)), make([][]byte, len(keys))
	for i, k := range keys {
		numbers[i], boxes[i] = k.number, r.wrapper.Wrap(r.id, k.number, k.key)
	}
	return tx.Run(ctx, `INSERT INTO row_keys (number, box) SELECT unnest($1::bigint[]), unnest($2::bytea[])`,
		numbers, boxes)
}

// Get implements sealed.Ring. A key that another server has erased may be found in the
// cache: its row is not.
func (r *tableRing) Get(ctx context.Context, number int64) (key [32]byte, err error) {
	if key, ok := r.cached(number); ok {
		return key, nil
	}
	first := number - number%keyBlock
	type rowBox struct {
		number int64
		box    []byte
	}
	rows, err := base.List(ctx, r, `SELECT number, box FROM row_keys WHERE number >= $1 AND number <= $2`,
		[]any{first, first + keyBlock - 1}, func(r *rowBox) []any { return []any{&r.number, &r.box} })
	if err != nil {
		return key, wrap(err)
	}
	err = store.ErrNotFound
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		k, damaged := r.wrapper.Unwrap(r.id, row.number, row.box)
		if damaged != nil {
			if row.number == number {
				return key, fmt.Errorf("key %d: %w", number, damaged)
			}
			continue
		}
		r.cacheLocked(row.number, k)
		if row.number == number {
			key, err = k, nil
		}
	}
	return key, err
}

// cached returns a key of the cache.
func (r *tableRing) cached(number int64) (key [32]byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turnLocked()
	if key, ok = r.young[number]; !ok {
		key, ok = r.old[number]
	}
	return key, ok
}

// cacheLocked caches a key. r.mu is held.
func (r *tableRing) cacheLocked(number int64, key [32]byte) {
	r.turnLocked()
	r.young[number] = key
}

// turnLocked drops the older half of the cache when the younger one is full or old. r.mu
// is held.
func (r *tableRing) turnLocked() {
	if now := time.Now(); r.young == nil || len(r.young) >= mostCached || now.Sub(r.turned) >= keyLife {
		r.old, r.young, r.turned = r.young, map[int64][32]byte{}, now
	}
}

// Erase implements sealed.Ring. It deletes the rows of keys; Scrub removes what PostgreSQL
// retains of them.
func (r *tableRing) Erase(ctx context.Context, numbers ...int64) error {
	err := r.Update(ctx, func(ctx context.Context, tx *base.Tx) error {
		return tx.Run(ctx, `DELETE FROM row_keys WHERE number = ANY ($1)`, numbers)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range numbers {
		delete(r.young, n)
		delete(r.old, n)
	}
	return err
}

// Close deletes the keys that were created and not used. If that fails, they remain, which
// does no harm.
func (r *tableRing) Close() error {
	r.creating.Lock()
	spare := r.spare
	r.spare, r.size = nil, 0
	r.creating.Unlock()
	numbers := make([]int64, len(spare))
	for i, k := range spare {
		numbers[i] = k.number
	}
	if len(numbers) > 0 {
		_ = r.Erase(context.Background(), numbers...)
	}
	return nil
}

// errOtherKey means that the database belongs to servers with another key.
var errOtherKey = fmt.Errorf(
	"%w than the seal.key of this server; all servers of a database need the same seal.key, and after a rotation the new one",
	sealed.ErrOtherKeys)

// openKeys opens the keys of a database, and checks that it was written with them. Former
// versions stored them in a file, whose keys it moves into the database.
func openKeys(ctx context.Context, c *core, path string, root [32]byte) (*sealed.Keys, error) {
	file, err := openRingFile(path)
	if err != nil {
		return nil, err
	}
	ring := &tableRing{core: c, wrapper: sealed.NewWrapper(root)}
	keys := sealed.NewKeys(ring, root)
	err = c.writer.Update(ctx, func(ctx context.Context, tx *base.Tx) error {
		var mark, id []byte
		err := base.Read(ctx, tx, `SELECT mark, id FROM ring`, nil, &mark, &id)
		if errors.Is(err, store.ErrNotFound) {
			if file.exists {
				return fmt.Errorf(
					"the database is empty, but %s belongs to another one, which was sealed with other keys; check the URL, or use a new state directory",
					path)
			}
			rand.Read(ring.id[:])
			return tx.Run(ctx, `INSERT INTO ring (mark, id) VALUES ($1, $2)`, keys.Mark(), ring.id[:])
		}
		if err != nil {
			return err
		}
		moving := id == nil
		if moving && !file.exists {
			return fmt.Errorf(
				"the keys of the database's rows are still in the file berth.keys of the server that used it, not in %s; start that server first, and it moves them into the database",
				path)
		}
		if moving {
			id = file.id[:]
		}
		copy(ring.id[:], id)
		if keys.Check(mark) != nil {
			return errOtherKey
		}
		if file.exists && file.id != ring.id {
			return fmt.Errorf(
				"the database was sealed with other keys than those that %s belongs to; check the URL, or use a new state directory",
				path)
		}
		if moving {
			return ring.move(ctx, tx, file)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	ring.mark = keys.Mark()
	c.ring.Store(ring)
	return keys, file.settle(ring.id)
}

// Scrub rewrites the table of keys, without the keys that were erased, if any were since
// the last call. PostgreSQL otherwise retains deleted rows in its files. One server at a
// time should call it. Reads and writes of keys wait for it.
func (d *DB) Scrub(ctx context.Context) error {
	var deleted int64 // by PostgreSQL's statistics
	if err := base.Read(ctx, d.core, `SELECT coalesce(pg_stat_get_tuples_deleted('row_keys'::regclass), 0)`, nil,
		&deleted); err != nil {
		return fmt.Errorf("count erased keys: %w", wrap(err))
	}
	d.scrubbing.Lock()
	defer d.scrubbing.Unlock()
	if deleted == d.scrubbed {
		return nil
	}
	var err error
	for range scrubTries {
		if err = d.rewriteKeys(ctx); err == nil {
			d.scrubbed = deleted
			return nil
		}
		if backoff.Sleep(ctx, time.Second) != nil {
			break
		}
	}
	return fmt.Errorf("rewrite the keys: %w", wrap(err))
}

// scrubTries is how often Scrub tries to lock the table.
const scrubTries = 10

// rewriteKeys rewrites the table of keys if it can lock it soon. A transaction that has locked
// the table may need a key from it, which waits behind this statement.
func (d *DB) rewriteKeys(ctx context.Context) error {
	c, err := d.core.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("get connection: %w", err)
	}
	defer c.Release()
	if _, err := c.Exec(ctx, "SET lock_timeout = '300ms'"); err != nil {
		return fmt.Errorf("limit the wait for the lock: %w", err)
	}
	_, err = c.Exec(ctx, "VACUUM (FULL) row_keys")
	_, reset := c.Exec(ctx, "RESET lock_timeout")
	return errors.Join(err, reset)
}

package sealed

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/store"
)

// A Ring stores the keys of a database's rows, by number. It must not be stored with the
// database: a copy of the database that has the keys too can read deleted rows. OpenFile
// opens a Ring in a file; a database on several machines brings its own. A Ring is safe
// for concurrent use.
type Ring interface {
	// Name describes the ring in errors, for example by its path.
	Name() string
	// ID returns the ring's identifier, which is random and never changes.
	ID() [16]byte
	// New returns a new random key and its number, which is above 0 and never used
	// again. The key is durable. After Close the error is store.ErrClosed.
	New(ctx context.Context) (number int64, key [32]byte, err error)
	// Get returns a key. It returns store.ErrNotFound if the key is erased or does not
	// exist.
	Get(ctx context.Context, number int64) ([32]byte, error)
	// Erase destroys keys durably. Keys may be erased already.
	Erase(ctx context.Context, numbers ...int64) error
	Close() error
}

// fileRing is a Ring in a local file.
type fileRing struct {
	ring *keyring.Ring
	path string
}

// OpenFile opens the Ring in a file and creates the file if it does not exist.
func OpenFile(path string) (Ring, error) {
	ring, err := keyring.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	return fileRing{ring, path}, nil
}

func (r fileRing) Name() string { return r.path }

func (r fileRing) ID() [16]byte { return r.ring.ID() }

func (r fileRing) New(context.Context) (int64, [32]byte, error) {
	n, key, err := r.ring.New()
	if errors.Is(err, os.ErrClosed) {
		err = store.ErrClosed
	}
	return n, key, err
}

func (r fileRing) Get(_ context.Context, number int64) ([32]byte, error) {
	key, err := r.ring.Get(number)
	if errors.Is(err, keyring.ErrErased) {
		err = store.ErrNotFound
	}
	return key, err
}

func (r fileRing) Erase(_ context.Context, numbers ...int64) error { return r.ring.Erase(numbers...) }

func (r fileRing) Close() error { return r.ring.Close() }

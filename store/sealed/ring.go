package sealed

import (
	"context"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store"
)

// A Ring stores the keys of a database's rows, by number. OpenFile opens a Ring in a file,
// which a copy of the database does not have. A Ring in the database itself, for several
// servers, stores what Wrapper returns: a copy of the database from before a deletion
// together with the servers' key can read the deleted row. A Ring is safe for concurrent
// use.
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

// A Wrapper encrypts the keys of a Ring that is stored with its database. It is safe for
// concurrent use.
type Wrapper struct{ aead cipher.AEAD }

// NewWrapper returns the Wrapper of servers with a key.
func NewWrapper(root [32]byte) Wrapper {
	return Wrapper{seal.New((&generation{root: root}).derive("wrapper"))}
}

// wrapped returns what a wrapped key is bound to.
func wrapped(ring [16]byte, number int64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte("row key\x00"), ring[:]...), uint64(number))
}

// Wrap returns the encrypted key with a number of the ring with an id.
func (w Wrapper) Wrap(ring [16]byte, number int64, key [32]byte) []byte {
	return w.aead.Seal(nil, nil, key[:], wrapped(ring, number))
}

// Unwrap returns the key in a box of Wrap.
func (w Wrapper) Unwrap(ring [16]byte, number int64, box []byte) (key [32]byte, err error) {
	plain, err := w.aead.Open(nil, nil, box, wrapped(ring, number))
	if err != nil || len(plain) != len(key) {
		return key, errors.New("it is damaged, or was wrapped with another server's key")
	}
	return [32]byte(plain), nil
}

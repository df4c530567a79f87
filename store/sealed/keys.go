// Package sealed seals the contents of a database and erases deleted ones.
//
// Each response, container, uploaded file and object has a key of its own, which seals
// the content that clients write. Copies of the content in logs, in free pages and in
// blocks returned to the file system are unreadable without the key. Deleting the row
// destroys the key, so an earlier disk image is unreadable. Ids, times, sizes, kinds,
// owners, and the names of API keys are not sealed.
//
// A driver stores boxes in place of content, and with each row the number of its key:
//
//  1. Open a Ring and make Keys of it. Save their Mark in a new database, Check it in
//     an existing one. If Strict is false and no row has key 0, save what Seal returns.
//  2. Seal rows with the methods of Key, and open them with those of Opener.
//  3. Delete rows and list their keys as doomed in one transaction, then call
//     Eraser.Erase.
//
// storetest.Sealing tests it. The form of boxes must not change: databases have them.
package sealed

import (
	"context"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Keys are the keys of a database's rows. They are safe for concurrent use.
type Keys struct {
	now atomic.Pointer[generation]

	// swapping is held while a rotation commits: a key that could not be read in that time may be one
	// of the next generation.
	swapping sync.RWMutex
}

// NewKeys returns the keys in a ring, for a new database. root is the server's key, without which the ring
// is useless.
func NewKeys(ring Ring, root [32]byte) *Keys {
	k := &Keys{}
	k.now.Store(&generation{ring: ring, root: root, strict: true})
	return k
}

// ErrUnsealed means that a row is not sealed, in a database in which all rows are. Something else than Berth
// has written it.
var ErrUnsealed = errors.New("the content is not sealed")

// Strict reports whether unsealed rows are refused. They are in a database that has never had one: whoever can
// write to it could otherwise plant contents, or make rows of which the server writes the rest in the clear.
func (k *Keys) Strict() bool { return k.now.Load().strict }

// Seal makes k strict and returns its new mark, which the caller must have saved when it uses k. The database
// must have no unsealed row, and k no other user.
func (k *Keys) Seal() (mark []byte) {
	g := k.now.Load()
	k.now.Store(&generation{ring: g.ring, root: g.root, sealed: g.sealed, strict: true})
	return k.Mark()
}

// Close closes the ring.
func (k *Keys) Close() error {
	if err := k.now.Load().ring.Close(); err != nil {
		return fmt.Errorf("close keys: %w", err)
	}
	return nil
}

// Mark returns a value that identifies the ring and the server's key. It is not
// secret.
func (k *Keys) Mark() []byte { return k.now.Load().mark() }

// ErrOtherKeys means that a database was sealed with other keys.
var ErrOtherKeys = errors.New("the database was sealed with other keys")

// Check returns ErrOtherKeys unless mark is that of k. It must be called before k is used: the mark
// says in which form the keys are.
func (k *Keys) Check(mark []byte) error {
	g := k.now.Load()
	if next, ok := g.matching(mark); ok {
		k.now.Store(next)
		return nil
	}
	return fmt.Errorf(
		"%w than those in %s and the server's key (seal.key); if the key was rotated, only the new one opens it; restore the database, the keys and the server's key from the same backup",
		ErrOtherKeys, g.ring.Name())
}

// read calls f with the present generation, and again if a rotation may have made it fail.
func (k *Keys) read(f func(g *generation) error) error {
	for {
		g := k.now.Load()
		g.inUse.RLock()
		err := f(g)
		g.inUse.RUnlock()
		if err == nil {
			return nil
		}
		k.swapping.RLock()
		same := k.now.Load() == g
		k.swapping.RUnlock()
		if same {
			return err
		}
	}
}

// New returns the key of a new row. The key is durable when New returns.
func (k *Keys) New(ctx context.Context) (key Key, err error) {
	err = k.read(func(g *generation) error {
		n, part, err := g.ring.New(ctx)
		if err != nil {
			return fmt.Errorf("new key: %w", err)
		}
		key = g.row(n, part)
		return nil
	})
	return key, err
}

// Get returns a key by its number. It returns store.ErrNotFound if the key is erased:
// its row is deleted, or is being deleted. The key with number 0 seals nothing; if k is strict, it is
// ErrUnsealed.
func (k *Keys) Get(ctx context.Context, number int64) (key Key, err error) {
	if number == 0 {
		if k.Strict() {
			return Key{}, ErrUnsealed
		}
		return Key{}, nil
	}
	err = k.read(func(g *generation) error {
		part, err := g.ring.Get(ctx, number)
		if errors.Is(err, store.ErrNotFound) {
			return store.ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("get key: %w", err)
		}
		key = g.row(number, part)
		return nil
	})
	return key, err
}

// erase destroys keys.
func (k *Keys) erase(ctx context.Context, numbers []int64) error {
	return k.read(func(g *generation) error {
		if err := g.ring.Erase(ctx, numbers...); err != nil {
			return fmt.Errorf("erase keys: %w", err)
		}
		return nil
	})
}

// HideName returns a digest that replaces the name of a container in the database, so
// that containers can be found by name. It returns "" for "". A rotation changes it: a transaction that
// stores it must call HideName.
func (k *Keys) HideName(p berth.ProjectID, name string) string { return k.now.Load().hideName(p, name) }

// A Key seals a row and its parts. The zero value is the key of unsealed rows, which
// versions before sealing have written.
type Key struct {
	number int64
	secret [32]byte
	aead   cipher.AEAD
}

// Number returns the number of the key, for Keys.Get.
func (k Key) Number() int64 { return k.number }

// A box consists of boxMark, the number of its key, and the content as sealed by
// seal.New and bound to both and to the kind of content. JSON never starts with
// boxMark. Content that does not start with it is not sealed.
const (
	boxMark   = 1
	boxHeader = 1 + 8
)

// A sealedField names the field of a row to which a ciphertext belongs.
type sealedField string

const (
	contentRequest sealedField = "request"
	contentInput   sealedField = "input"
	contentBody    sealedField = "body" // of any row
	contentOutput  sealedField = "output"
	contentEvent   sealedField = "event"  // of a row from before contentEvents
	contentEvents  sealedField = "events" // of one write
	contentPath    sealedField = "path"   // of a file in a container
)

// seal returns a box with the content.
func (k Key) seal(c sealedField, plain []byte) []byte {
	if k.number == 0 {
		return plain
	}
	box := make([]byte, 0, boxHeader+len(plain)+k.aead.Overhead())
	box = binary.BigEndian.AppendUint64(append(box, boxMark), uint64(k.number))
	return k.aead.Seal(box, nil, plain, append([]byte(c), box...))
}

// keyOf returns the number of a box's key, or 0 if it is not sealed.
func keyOf(box []byte) int64 {
	if len(box) < boxHeader || box[0] != boxMark {
		return 0
	}
	return int64(binary.BigEndian.Uint64(box[1:]))
}

// Package keyring stores erasable keys, each at a fixed place in one small file, where it can be
// overwritten.
//
// Data sealed under a key may be copied anywhere by a database, a file system or a disk. The key file
// must not be: it is written once, synced, and overwritten in place.
package keyring

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrErased is returned for a key that is erased or never existed.
var ErrErased = errors.New("keyring: the key is erased")

// A Key is a key of a ring.
type Key [32]byte

// The file starts with a header of one block: magic, and the ring's id. The keys follow, numbered
// from 1. A key of zeros is erased.
const (
	magic     = "berth keys 1\n"
	blockSize = 4096
	keySize   = int64(len(Key{}))
	perBlock  = blockSize / keySize

	// chunk is the number of keys created and synced at once.
	chunk = 8 * perBlock
)

// A Ring is a file of keys. It is safe for concurrent use, also by several processes.
type Ring struct {
	file *os.File
	id   [16]byte

	mu        sync.Mutex
	next, end int64 // numbers of the keys reserved for this process and unused
	closed    bool
}

// Open opens the ring in a file. It creates a missing file, readable by its owner only.
func Open(path string) (*Ring, error) {
	var id [16]byte
	rand.Read(id[:])
	return OpenAs(path, id)
}

// OpenAs is Open with the id of a ring that it creates.
func OpenAs(path string, id [16]byte) (_ *Ring, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("keyring: %s: %w", path, err), f.Close())
		}
	}()
	r := &Ring{file: f, id: id}
	return r, r.locked(func() error { return r.open(path) })
}

// open reads the header, or writes it to an empty file.
func (r *Ring) open(path string) error {
	var header [blockSize]byte
	n, err := r.file.ReadAt(header[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n == 0 {
		copy(header[:], magic)
		copy(header[len(magic):], r.id[:])
		if _, err := r.file.WriteAt(header[:], 0); err != nil {
			return err
		}
		if err := errors.Join(r.file.Sync(), syncDir(filepath.Dir(path))); err != nil {
			return err
		}
	} else if n < blockSize || !bytes.HasPrefix(header[:], []byte(magic)) {
		return errors.New("not a key file, or damaged; restore it from a backup")
	}
	copy(r.id[:], header[len(magic):])
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// locked runs f while it holds the lock on the file.
func (r *Ring) locked(f func() error) error {
	fd := int(r.file.Fd())
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return errors.Join(f(), unix.Flock(fd, unix.LOCK_UN))
}

// ID returns the id of the ring.
func (r *Ring) ID() [16]byte { return r.id }

// New returns a new key and its number, which is above 0. The key is durable.
func (r *Ring) New() (int64, Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, Key{}, fmt.Errorf("keyring: %w", os.ErrClosed)
	}
	if r.next == r.end {
		if err := r.locked(r.reserve); err != nil {
			return 0, Key{}, fmt.Errorf("keyring: create keys: %w", err)
		}
	}
	n := r.next
	k, err := r.Get(n)
	if err != nil {
		return 0, k, err
	}
	r.next++
	return n, k, nil
}

// reserve appends keys for this process.
func (r *Ring) reserve() error {
	first, err := r.count()
	if err != nil {
		return err
	}
	keys := make([]byte, chunk*keySize)
	rand.Read(keys)
	if _, err := r.file.WriteAt(keys, place(first+1)); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(r.file.Fd())); err != nil {
		return fmt.Errorf("sync keys: %w", err)
	}
	r.next, r.end = first+1, first+1+chunk
	return nil
}

// Last returns the number of the last key that exists or existed.
func (r *Ring) Last() (int64, error) { return r.count() }

// EraseAll overwrites all keys in place, and removes them. No process may use the ring.
func (r *Ring) EraseAll() error {
	last, err := r.count()
	if err != nil || last == 0 {
		return err
	}
	all := make([]int64, last)
	for i := range all {
		all[i] = int64(i) + 1
	}
	if err := r.Erase(all...); err != nil {
		return err
	}
	if err := r.file.Truncate(place(1)); err != nil {
		return fmt.Errorf("keyring: %w", err)
	}
	return nil
}

// count returns the number of keys, including a last one that a crash truncated.
func (r *Ring) count() (int64, error) {
	info, err := r.file.Stat()
	if err != nil {
		return 0, err
	}
	return (max(info.Size(), blockSize) - blockSize + keySize - 1) / keySize, nil
}

func place(n int64) int64 { return blockSize + (n-1)*keySize }

// Get returns a key by its number, or ErrErased.
func (r *Ring) Get(n int64) (k Key, err error) {
	if n < 1 {
		return k, ErrErased
	}
	if _, err := r.file.ReadAt(k[:], place(n)); err != nil && !errors.Is(err, io.EOF) {
		return Key{}, fmt.Errorf("keyring: %w", err)
	}
	if k == (Key{}) {
		return k, ErrErased
	}
	return k, nil
}

// Erase overwrites keys in place. When it returns nil, the keys are durably erased.
func (r *Ring) Erase(numbers ...int64) error {
	numbers = slices.Sorted(slices.Values(numbers))
	last, err := r.count()
	if err != nil {
		return err
	}
	var blocks []int64 // blocks whose keys may now all be erased
	for _, n := range numbers {
		if n < 1 || n > last {
			return fmt.Errorf("keyring: no key %d", n)
		}
		if _, err := r.file.WriteAt(make([]byte, keySize), place(n)); err != nil {
			return fmt.Errorf("keyring: %w", err)
		}
		if b := place(n) / blockSize; len(blocks) == 0 || blocks[len(blocks)-1] != b {
			blocks = append(blocks, b)
		}
	}
	if err := unix.Fdatasync(int(r.file.Fd())); err != nil {
		return fmt.Errorf("keyring: %w", err)
	}
	for _, b := range blocks {
		r.punch(b)
	}
	return nil
}

// punch returns a block to the file system if all its keys are erased. Failure is harmless.
func (r *Ring) punch(block int64) {
	keys := make([]byte, blockSize)
	if _, err := io.ReadFull(io.NewSectionReader(r.file, block*blockSize, blockSize), keys); err != nil ||
		!bytes.Equal(keys, make([]byte, blockSize)) {
		return
	}
	_ = unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, block*blockSize, blockSize)
}

// Close releases the unused keys and closes the ring.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.locked(func() error {
		last, err := r.count()
		if err != nil || r.next == r.end || last != r.end-1 {
			return err
		}
		return r.file.Truncate(place(r.next))
	})
	r.closed = true
	return errors.Join(err, r.file.Close())
}

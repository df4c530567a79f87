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

// ErrReplaced is returned for a new key of a ring whose keys were copied to another file.
var ErrReplaced = errors.New("keyring: another file has replaced the keys")

// A Tag tells apart files with the keys of one ring. It is zero in a file that Open created.
type Tag [32]byte

// The file starts with a header of one block: magic, the ring's id, and its tag if it has one. The
// keys follow, numbered from 1. A key of zeros is erased.
const (
	magic     = "berth keys 1\n"
	tagged    = "berth keys 2\n" // the magic of a file with a tag, which former versions cannot use
	blockSize = 4096
	keySize   = int64(len(Key{}))
	perBlock  = blockSize / keySize

	// chunk is the number of keys created and synced at a time.
	chunk = 8 * perBlock
)

// A Ring is a file of keys. It is safe for concurrent use, also by several processes.
type Ring struct {
	file *os.File
	id   [16]byte
	tag  Tag

	mu        sync.Mutex
	next, end int64 // numbers of the keys reserved for this process and unused
	replaced  bool  // by another file
	closed    bool

	erasing sync.RWMutex // held for reading to erase keys, for writing with mu to change replaced
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
		header = headerOf(r.id, Tag{})
		if _, err := r.file.WriteAt(header[:], 0); err != nil {
			return err
		}
		if err := errors.Join(r.file.Sync(), SyncDir(filepath.Dir(path))); err != nil {
			return err
		}
	} else if n < blockSize || !bytes.HasPrefix(header[:], []byte(magic)) && !bytes.HasPrefix(header[:],
		[]byte(tagged)) {
		return errors.New("not a key file, or damaged; restore it from a backup")
	}
	copy(r.id[:], header[len(magic):])
	copy(r.tag[:], header[len(magic)+len(r.id):])
	return nil
}

// headerOf returns the header of a file.
func headerOf(id [16]byte, tag Tag) (header [blockSize]byte) {
	kind := magic
	if tag != (Tag{}) {
		kind = tagged
	}
	copy(header[:], kind)
	copy(header[len(kind):], id[:])
	copy(header[len(kind)+len(id):], tag[:])
	return header
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
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

// Tag returns the tag of the ring's file.
func (r *Ring) Tag() Tag { return r.tag }

// New returns a new key and its number, which is above 0. The key is durable.
func (r *Ring) New() (int64, Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, Key{}, fmt.Errorf("keyring: %w", os.ErrClosed)
	}
	if r.replaced {
		return 0, Key{}, ErrReplaced
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
	if err := r.erase(all); err != nil {
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
	r.erasing.RLock()
	defer r.erasing.RUnlock()
	if r.replaced {
		return ErrReplaced
	}
	return r.erase(numbers)
}

func (r *Ring) erase(numbers []int64) error {
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

// Replace copies all keys to a new file with a tag, each as convert returns it. Until Undo is called, the
// ring makes and erases no keys, and returns ErrReplaced. If Replace fails, it has no effect.
func (r *Ring) Replace(path string, tag Tag, convert func(number int64, k Key) Key) (err error) {
	r.erasing.Lock()
	defer r.erasing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.release(); err != nil {
		return err
	}
	c, err := create(path, r.id, tag)
	if err != nil {
		return err
	}
	last, err := r.count()
	for n := int64(1); n <= last && err == nil; n++ {
		var k Key
		if k, err = r.Get(n); errors.Is(err, ErrErased) {
			err = nil
		} else if err == nil {
			err = c.Put(n, convert(n, k))
		}
	}
	if err == nil {
		err = c.file.Truncate(place(last + 1)) // so that the numbers of erased keys are not used again
	}
	if err != nil {
		return errors.Join(err, c.Abort())
	}
	if err := c.Commit(); err != nil {
		return err
	}
	r.replaced = true
	return nil
}

// Undo makes the ring usable again after a Replace whose file is not used.
func (r *Ring) Undo() {
	r.erasing.Lock()
	defer r.erasing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaced = false
}

// Close releases the unused keys and closes the ring.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if !r.replaced {
		err = r.release()
	}
	r.closed = true
	return errors.Join(err, r.file.Close())
}

// release gives the unused keys of this process back. r.mu is held.
func (r *Ring) release() error {
	return r.locked(func() error {
		last, err := r.count()
		if err == nil && r.next != r.end && last == r.end-1 {
			err = r.file.Truncate(place(r.next))
		}
		if err == nil {
			r.next, r.end = 0, 0
		}
		return err
	})
}

package sealed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/internal/keyring"
)

// A rotation writes the keys to a file beside the present one. When the database has committed to it, the
// files change their names. A crash leaves at most one file more; OpenMarked ends what it interrupted.
const (
	nextSuffix   = ".next"   // the new file, before it has the name of the ring
	formerSuffix = ".former" // the old file, until it is erased
)

// OpenMarked returns the keys of a database with a mark, whose ring is in a file. No other process may
// rotate them.
func OpenMarked(path string, root [32]byte, mark []byte) (*Keys, error) {
	path = target(path)
	k, err := openMarked(path, root, mark)
	if errors.Is(err, ErrOtherKeys) {
		next, missing := openMarked(path+nextSuffix, root, mark)
		if missing != nil {
			return nil, err
		}
		if err := errors.Join(next.Close(), takeNext(path)); err != nil {
			return nil, fmt.Errorf("end the rotation of keys: %w", err)
		}
		k, err = openMarked(path, root, mark)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(removeRing(path+nextSuffix), removeRing(path+formerSuffix)); err != nil {
		return nil, errors.Join(fmt.Errorf("erase keys of an interrupted rotation: %w", err), k.Close())
	}
	return k, nil
}

func openMarked(path string, root [32]byte, mark []byte) (*Keys, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing; restore the database, the keys and the server's key from the same backup",
			ErrOtherKeys, path)
	}
	ring, err := keyring.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	k := NewKeys(fileRing{ring, path}, root)
	err = k.Check(mark)
	if err == nil && ring.Tag() != k.now.Load().fileTag() {
		err = fmt.Errorf(
			"%w: %s is a copy from before or after a rotation of the server's key (seal.key); restore the database, the keys and the server's key from the same backup",
			ErrOtherKeys, path)
	}
	if err != nil {
		return nil, errors.Join(err, ring.Close())
	}
	return k, nil
}

// target returns the path that a link leads to: an operator may have put the file on another volume.
// The file may be missing.
func target(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	to, err := os.Readlink(path)
	if err != nil {
		return path
	}
	if filepath.IsAbs(to) {
		return to
	}
	return filepath.Join(filepath.Dir(path), to)
}

// takeNext gives the next file the name of the ring, and erases the former one.
func takeNext(path string) error {
	if err := os.Rename(path, path+formerSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rename the former keys: %w", err)
	}
	if err := os.Rename(path+nextSuffix, path); err != nil {
		return fmt.Errorf("rename the next keys: %w", err)
	}
	if err := keyring.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync the directory of keys: %w", err)
	}
	return removeRing(path + formerSuffix)
}

// removeRing erases the keys in a file, if it exists, and removes it.
func removeRing(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ring, err := keyring.Open(path)
	if err != nil {
		return fmt.Errorf("open former keys: %w", err)
	}
	if err := errors.Join(ring.EraseAll(), ring.Close(), os.Remove(path)); err != nil {
		return fmt.Errorf("erase former keys: %w", err)
	}
	return nil
}

// A FileRotation is a Rotation of keys in a file.
type FileRotation struct {
	*Rotation
	path string
	old  *keyring.Ring
}

// RotateFile starts a Rotation of keys in a file.
func (k *Keys) RotateFile(root [32]byte) (*FileRotation, error) {
	r := k.Rotate(root)
	file, ok := r.old.ring.(fileRing)
	if !ok {
		return nil, errors.New("the keys are not in a file")
	}
	return &FileRotation{r, target(file.path), file.ring}, nil
}

// Copy calls Hold, and writes the new keys to a file beside the ring's. Until Commit or Abort, the ring
// neither makes nor erases keys.
func (r *FileRotation) Copy() error {
	r.Hold()
	err := r.old.Replace(r.path+nextSuffix, r.next.fileTag(), func(n int64, k keyring.Key) keyring.Key {
		return r.Reseal(n, k)
	})
	if err != nil {
		return fmt.Errorf("copy keys: %w", err)
	}
	ring, err := keyring.Open(r.path + nextSuffix)
	if err != nil {
		return fmt.Errorf("open the next keys: %w", err)
	}
	r.SetRing(fileRing{ring, r.path})
	return nil
}

// Commit makes the new keys those of the database, gives their file the name of the ring, and erases the
// former file.
func (r *FileRotation) Commit() error {
	r.Rotation.Commit()
	r.Rotation.old.inUse.Lock() // wait for readers of the former file
	defer r.Rotation.old.inUse.Unlock()
	if err := takeNext(r.path); err != nil {
		return err
	}
	if err := r.old.Close(); err != nil {
		return fmt.Errorf("close former keys: %w", err)
	}
	return nil
}

// Abort ends the rotation, so that the ring has its former keys.
func (r *FileRotation) Abort() error {
	defer r.Rotation.Abort()
	r.old.Undo()
	var err error
	if next, ok := r.next.ring.(fileRing); ok && next.ring != r.old {
		err = next.Close()
	}
	return errors.Join(err, removeRing(r.path+nextSuffix))
}

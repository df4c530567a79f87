// Package blob stores sealed blobs, such as uploaded files and snapshots. A blob is a record in
// the store and a content outside of it, which is encrypted with a key of its own. The record
// holds the key: after its deletion no copy of the content can be decrypted, on any medium.
package blob

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// A Ref names a blob: its record and its content.
type Ref struct {
	Project berth.ProjectID
	ID      string
}

func (r Ref) String() string { return string(r.Project) + "/" + r.ID }

// A Key encrypts the content of one blob.
type Key [32]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	rand.Read(k[:]) // never fails
	return k
}

// SealKey encrypts the key of a content with the server's key, for the record. bound names the
// blob: a sealed key cannot be opened as that of another blob.
func SealKey(aead cipher.AEAD, key, bound []byte) []byte { return aead.Seal(nil, nil, key, bound) }

// OpenKey decrypts a key of size bytes that SealKey sealed.
func OpenKey(aead cipher.AEAD, sealed, bound []byte, size int) ([]byte, error) {
	key, err := aead.Open(nil, nil, sealed, bound)
	if err == nil && len(key) != size {
		err = fmt.Errorf("key has %d bytes, want %d", len(key), size)
	}
	if err != nil {
		return nil, fmt.Errorf("open sealed key with the key of this server: %w", err)
	}
	return key, nil
}

// Records are the records of the blobs of a Collection.
type Records interface {
	// Delete deletes a record. It returns store.ErrNotFound if it does not exist.
	Delete(ctx context.Context, r Ref) error
	// Exists reports whether a record exists.
	Exists(ctx context.Context, r Ref) (bool, error)
	// Expired returns up to limit blobs, of all projects, that have expired by now.
	Expired(ctx context.Context, now time.Time, limit int) ([]Ref, error)
}

// Options are a Collection's parts.
type Options struct {
	Noun    string // the name of a blob in errors, such as "file"
	Records Records

	// Remove removes a content. It returns nil if the content does not exist.
	Remove func(ctx context.Context, r Ref) error

	Audit *audit.Log // nil: no audit
}

// A Collection is all blobs of one kind. It orders the steps in which they are created and
// deleted, so that a crash leaves at most contents without a record. It is safe for
// concurrent use.
type Collection struct {
	opts   Options
	saving sync.Mutex // held from the quota check until the record is saved
}

// NewCollection returns a collection.
func NewCollection(opts Options) *Collection { return &Collection{opts: opts} }

// A Creation is how a blob is created.
type Creation struct {
	Ref Ref

	// Admit returns an error if the project may not store the blob. It is called before the
	// content is written, and again when its size is known. nil admits every blob.
	Admit func(ctx context.Context) error
	Write func(ctx context.Context) error // writes the content
	Save  func(ctx context.Context) error // saves the record
	Entry func() audit.Entry              // returns the audit entry of the creation
}

// Create creates a blob. If it fails, nothing of the blob is left.
func (c *Collection) Create(ctx context.Context, how Creation) error {
	if how.Admit != nil {
		if err := how.Admit(ctx); err != nil {
			return err
		}
	}
	err := how.Write(ctx)
	if err == nil {
		err = c.save(ctx, how)
	}
	if err != nil {
		_ = c.opts.Remove(context.WithoutCancel(ctx), how.Ref) // on failure the next sweep removes it
		return err
	}
	c.opts.Audit.Record(how.Entry())
	return nil
}

// save saves the record if the blob is still admitted.
func (c *Collection) save(ctx context.Context, how Creation) error {
	if how.Admit != nil {
		c.saving.Lock()
		defer c.saving.Unlock()
		if err := how.Admit(ctx); err != nil {
			return err
		}
	}
	return how.Save(ctx)
}

// Delete deletes a blob's record, which has the key, removes the content and records entry. If
// the content cannot be removed, it is left unreadable for the next sweep; Delete reports that
// unless the cause is an outage of the storage. It returns store.ErrNotFound if the record does
// not exist.
func (c *Collection) Delete(ctx context.Context, r Ref, entry audit.Entry) error {
	if err := c.opts.Records.Delete(ctx, r); err != nil {
		return err
	}
	err := c.opts.Remove(ctx, r)
	if errors.Is(err, ErrUnavailable) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("remove content of %s %s, which the next start removes: %w", c.opts.Noun, r.ID, err)
	}
	return errors.Join(err, c.opts.Audit.Commit(ctx, entry))
}

// ErrUnavailable means that the service that stores contents cannot be reached now.
var ErrUnavailable = errors.New("the storage of contents is not available")

// expireBatch is the number of expired blobs read at a time.
const expireBatch = 100

// Expire calls remove for the blobs of all projects that have expired by now. An error does not
// stop the others. Errors for a blob that is gone or in use are ignored.
func (c *Collection) Expire(ctx context.Context, now time.Time, remove func(context.Context, Ref) error) error {
	for {
		refs, err := c.opts.Records.Expired(ctx, now, expireBatch)
		if err != nil {
			return fmt.Errorf("list expired %ss: %w", c.opts.Noun, err)
		}
		var failed error
		removed := 0
		for _, r := range refs {
			switch err := remove(ctx, r); {
			case err == nil:
				removed++
			case errors.Is(err, store.ErrNotFound), berth.ErrorCode(err) == berth.CodeNotFound,
				berth.ErrorCode(err) == berth.CodeConflict:
			default:
				failed = errors.Join(failed, err)
			}
		}
		if failed != nil || len(refs) < expireBatch || removed == 0 {
			return failed
		}
	}
}

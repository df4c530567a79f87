// Package snapshot keeps snapshots of containers: their objects in the store, their
// content, sealed, in a bucket.
//
// Each content has a key of its own, which is kept with the object. When the object
// is gone, nobody can read what may be left of the content, on whatever medium.
package snapshot

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/internal/stored"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/store"
)

// Kind is the kind of a snapshot's object.
const Kind = store.KindSnapshot

// Options are a Service's parts.
type Options struct {
	Objects store.Objects
	Bucket  *blob.Bucket // which holds nothing else
	Seal    cipher.AEAD  // for the keys; as seal.New returns it

	// Quota returns an error for the client if a project may not store so many more
	// bytes; nil is no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	// Count returns an error for the client if a project that keeps so many snapshots
	// may not keep another; nil is no limit. Those of forks do not count: they go when
	// the fork runs.
	Count func(ctx context.Context, p berth.ProjectID, kept int) error

	Audit *audit.Log   // of what is made and removed; nil is none
	Log   *slog.Logger // of content that is damaged; slog.Default if nil
}

// A Service keeps snapshots. It is safe for concurrent use. Errors that a client may
// see are *berth.Error.
type Service struct {
	opts Options
	book sync.Mutex // held between the quota's answer and the deed
}

// New returns a library.
func New(opts Options) *Service { return &Service{opts: opts} }

// A Record is a snapshot as it is kept.
type Record struct {
	Snapshot *berth.Snapshot `json:"snapshot"`
	// Files are those of its container that users had put in.
	Files []*berth.ContainerFile `json:"files,omitempty"`

	// Isolation is the driver's that wrote the memory; empty without memory.
	Isolation string `json:"isolation,omitempty"`

	Key []byte `json:"key"` // sealed
}

func key(id berth.SnapshotID) store.ObjectKey { return store.ObjectKey{Kind: Kind, ID: string(id)} }

func path(p berth.ProjectID, id berth.SnapshotID) string { return string(p) + "/" + string(id) }

// bound ties a sealed key to its snapshot.
func bound(p berth.ProjectID, id berth.SnapshotID) []byte {
	return []byte("container.snapshot\x00" + path(p, id))
}

// Create keeps a snapshot and sets of it ID, if it has none, Object, CreatedAt, Digest, Bytes and
// StoredBytes. Its content is the layer, or other tar archive, that write writes. When
// Create returns, the content has been read back.
func (l *Service) Create(ctx context.Context, p berth.ProjectID, r *Record, write func(io.Writer) (layer.Made, error)) error {
	s := r.Snapshot
	s.ID, s.Object, s.CreatedAt = cmp.Or(s.ID, berth.SnapshotID(berth.NewID(berth.PrefixSnapshot))), "container.snapshot", time.Now().Unix()
	if err := l.room(ctx, p, s); err != nil {
		return err // before its bytes are read
	}
	var k [32]byte
	rand.Read(k[:])
	made, err := l.write(ctx, path(p, s.ID), k, write)
	if err == nil {
		s.Digest, s.Bytes = made.Digest, made.Bytes
		err = l.verify(ctx, p, s, k)
	}
	if err == nil {
		r.Key = l.opts.Seal.Seal(nil, nil, k[:], bound(p, s.ID))
		err = l.save(ctx, p, r)
	}
	if err != nil {
		_ = l.opts.Bucket.Delete(context.WithoutCancel(ctx), path(p, s.ID)) // or the next Sweep does
		return err
	}
	l.opts.Audit.Record(audit.Entry{Action: audit.SnapshotCreated, Project: p, Container: s.ContainerID, Object: string(s.ID), Bytes: s.Bytes})
	return nil
}

// write writes a content: compressed, then sealed.
func (l *Service) write(ctx context.Context, at string, k [32]byte, content func(io.Writer) (layer.Made, error)) (made layer.Made, err error) {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	out, err := l.opts.Bucket.NewWriter(ctx, at, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return made, err
	}
	sealed := seal.NewWriter(out, k)
	packed, err := zstd.NewWriter(sealed, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err == nil {
		made, err = content(packed)
	}
	for _, c := range []io.Closer{packed, sealed} {
		if err == nil {
			err = c.Close()
		}
	}
	if err != nil {
		abort() // nothing is kept of it
		out.Close()
		return made, err
	}
	return made, out.Close()
}

// verify reads a content as who starts from it will.
func (l *Service) verify(ctx context.Context, p berth.ProjectID, s *berth.Snapshot, k [32]byte) error {
	attrs, err := l.opts.Bucket.Attributes(ctx, path(p, s.ID))
	if err != nil {
		return err
	}
	s.StoredBytes = attrs.Size
	content, err := l.open(ctx, p, s, k)
	if err != nil {
		return err
	}
	defer content.Close()
	sum := sha256.New()
	in := tar.NewReader(io.TeeReader(content, sum))
	for err == nil {
		_, err = in.Next()
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("the snapshot cannot be read back: %w", err)
	}
	if _, err := io.Copy(sum, content); err != nil {
		return fmt.Errorf("the snapshot cannot be read back: %w", err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != s.Digest {
		return fmt.Errorf("the snapshot's digest is %s, and was %s when it was written", got, s.Digest)
	}
	return nil
}

// save keeps a snapshot's object if there is room for it.
func (l *Service) save(ctx context.Context, p berth.ProjectID, r *Record) error {
	o := &store.Object{ObjectKey: key(r.Snapshot.ID), CreatedAt: r.Snapshot.CreatedAt}
	if at := r.Snapshot.ExpiresAt; at != nil {
		o.ExpiresAt = *at
	}
	var err error
	if o.Body, err = json.Marshal(r); err != nil {
		return err
	}
	l.book.Lock()
	defer l.book.Unlock()
	if err := l.room(ctx, p, r.Snapshot); err != nil {
		return err
	}
	return l.opts.Objects.CreateObjects(ctx, p, o)
}

// Get returns a snapshot.
func (l *Service) Get(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) (*berth.Snapshot, error) {
	r, err := l.Record(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return r.Snapshot, nil
}

// Record returns a snapshot as it is kept.
func (l *Service) Record(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) (*Record, error) {
	o, err := l.opts.Objects.GetObject(ctx, p, key(id))
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(o) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	return decode(o)
}

// Extend has a snapshot that expires before until expire then, also one that has expired
// and was not removed yet. What the snapshot says of its expiry stays as it is.
func (l *Service) Extend(ctx context.Context, p berth.ProjectID, id berth.SnapshotID, until time.Time) error {
	_, err := l.opts.Objects.UpdateObject(ctx, p, key(id), func(o *store.Object) error {
		if o.ExpiresAt != 0 {
			o.ExpiresAt = max(o.ExpiresAt, until.Unix())
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	return err
}

func expired(o *store.Object) bool { return o.ExpiresAt != 0 && o.ExpiresAt <= time.Now().Unix() }

func decode(o *store.Object) (*Record, error) {
	r := &Record{Snapshot: &berth.Snapshot{}}
	return r, json.Unmarshal(o.Body, r)
}

func notFound(id berth.SnapshotID) *berth.Error {
	return berth.Errorf(berth.CodeNotFound, "Snapshot with id '%s' not found.", id)
}

// List returns one page of snapshots and whether there is more. An unknown
// page.After is store.ErrNotFound.
func (l *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Snapshot, bool, error) {
	objects, more, err := l.opts.Objects.ListObjects(ctx, p, Kind, "", page)
	if err != nil {
		return nil, false, err
	}
	all := []*berth.Snapshot{}
	for _, o := range objects {
		r, err := decode(o)
		if err != nil {
			return nil, false, err
		}
		if !expired(o) {
			all = append(all, r.Snapshot)
		}
	}
	return all, more, nil
}

// Totals returns how many snapshots of all projects are kept and the bytes that they
// take, those that are being made included.
func (l *Service) Totals(ctx context.Context) (count int, bytes int64, err error) {
	for it := l.opts.Bucket.List(nil); ; count++ {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return count, bytes, nil
		}
		if err != nil {
			return 0, 0, err
		}
		bytes += o.Size
	}
}

// Open opens a snapshot's content, a layer. What is read is what was written, or
// ends with an error: berth.CodeCorrupt if it is missing or damaged, which is logged. The
// caller closes it.
func (l *Service) Open(ctx context.Context, p berth.ProjectID, r *Record) (io.ReadCloser, error) {
	plain, err := l.opts.Seal.Open(nil, nil, r.Key, bound(p, r.Snapshot.ID))
	if err != nil || len(plain) != 32 {
		return nil, fmt.Errorf("the key of %s cannot be opened with this server's: %w", r.Snapshot.ID, err)
	}
	return l.open(ctx, p, r.Snapshot, [32]byte(plain))
}

func (l *Service) open(ctx context.Context, p berth.ProjectID, s *berth.Snapshot, k [32]byte) (io.ReadCloser, error) {
	blobs := stored.Blobs{Bucket: l.opts.Bucket, Noun: "snapshot", Log: l.opts.Log}
	sealed, err := blobs.Open(ctx, path(p, s.ID), string(s.ID), s.StoredBytes)
	if err != nil {
		return nil, err
	}
	content, err := zstd.NewReader(blobs.Reader(string(s.ID), seal.NewReader(sealed, k)), zstd.WithDecoderConcurrency(1))
	if err != nil {
		sealed.Close()
		return nil, err
	}
	return &opened{content.IOReadCloser(), sealed}, nil
}

// An opened content.
type opened struct {
	io.ReadCloser
	below io.Closer
}

func (o *opened) Close() error { return errors.Join(o.ReadCloser.Close(), o.below.Close()) }

// Delete removes a snapshot, the object with its key first: what is left of the
// content then means nothing, and is Sweep's.
func (l *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) error {
	return l.delete(ctx, p, id, "deleted")
}

func (l *Service) delete(ctx context.Context, p berth.ProjectID, id berth.SnapshotID, reason string) error {
	if err := l.opts.Objects.DeleteObject(ctx, p, key(id)); errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	} else if err != nil {
		return err
	}
	if err := l.remove(ctx, path(p, id)); err != nil {
		return err
	}
	return l.opts.Audit.Commit(ctx, audit.Entry{Action: audit.SnapshotDeleted, Project: p, Object: string(id), Reason: reason})
}

func (l *Service) remove(ctx context.Context, at string) error {
	if err := l.opts.Bucket.Delete(ctx, at); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}

// expireBatch is how many snapshots are removed at once.
const expireBatch = 100

// Expire removes the snapshots of all projects whose time is up.
func (l *Service) Expire(ctx context.Context, now time.Time) error {
	for {
		refs, err := l.opts.Objects.ExpiredObjects(ctx, Kind, now, expireBatch)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			err := l.delete(ctx, ref.Project, berth.SnapshotID(ref.ID), "expired")
			if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
				return err
			}
		}
		if len(refs) < expireBatch {
			return nil
		}
	}
}

// Sweep removes content without an object, which a crash may leave. No snapshot may
// be in the making meanwhile.
func (l *Service) Sweep(ctx context.Context, log *slog.Logger) error {
	for it := l.opts.Bucket.List(nil); ; {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p, id, _ := strings.Cut(o.Key, "/")
		_, err = l.opts.Objects.GetObject(ctx, berth.ProjectID(p), key(berth.SnapshotID(id)))
		if errors.Is(err, store.ErrNotFound) {
			err = l.remove(ctx, o.Key)
		}
		if err != nil {
			log.Warn("a snapshot was not swept", "snapshot", id, "err", err)
		}
	}
}

// Package snapshot stores snapshots of containers: sealed blobs whose contents are layers.
package snapshot

import (
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/internal/clock"

	"archive/tar"
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/store"
)

// Kind is the kind of a snapshot's object.
const Kind = store.KindSnapshot

// ErrUnavailable means that the service that stores contents cannot be reached now.
var ErrUnavailable = blob.ErrUnavailable

// Options are a Service's parts.
type Options struct {
	Objects  store.Objects
	Contents blob.Storage // for contents of snapshots only
	Seal     cipher.AEAD  // for the keys; from seal.New

	// Quota returns an error for the client if a project may not store that many more bytes;
	// nil means no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	// Count returns an error for the client if a project with this many snapshots may not store
	// another; nil means no limit.
	Count func(ctx context.Context, p berth.ProjectID, stored int) error

	Audit *audit.Log   // nil: no audit
	Log   *slog.Logger // default slog.Default
	Clock clock.Clock  // default: that of the system
}

// A Service stores snapshots. It is safe for concurrent use. Its errors for clients are
// *berth.Error.
type Service struct {
	opts     Options
	records  blob.Objects[Record]
	contents *blob.Bucket
	blobs    *blob.Collection
}

// New returns a service.
func New(opts Options) *Service {
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	s := &Service{opts: opts, records: records(opts), contents: blob.NewBucket(opts.Contents, "snapshot",
		opts.Log)}
	s.blobs = blob.NewCollection(blob.Options{Noun: "snapshot", Records: s.records, Remove: s.contents.Remove,
		Audit: opts.Audit})
	return s
}

func records(opts Options) blob.Objects[Record] {
	return blob.Objects[Record]{Store: opts.Objects, Kind: Kind, Clock: opts.Clock}
}

// A Record is a snapshot as it is stored.
type Record struct {
	Snapshot *berth.Snapshot `json:"snapshot"`
	// Files are the files in the container that clients uploaded.
	Files []*berth.ContainerFile `json:"files,omitempty"`
	// Skills are the skills in the container. Their files are in the content.
	Skills []berth.ContainerSkill `json:"skills,omitempty"`

	// Isolation is the isolation of the driver that wrote the memory; empty without memory.
	Isolation string `json:"isolation,omitempty"`

	Key []byte `json:"key"` // sealed
}

func ref(p berth.ProjectID, id berth.SnapshotID) blob.Ref {
	return blob.Ref{Project: p, ID: string(id)}
}

// bound returns the associated data that binds a sealed key to its snapshot.
func bound(r blob.Ref) []byte { return []byte("container.snapshot\x00" + r.String()) }

// Create stores a snapshot. It sets Object, CreatedAt, Digest, Bytes and StoredBytes, and ID if
// it is empty. The content is the layer, or other tar archive, that write writes. Create reads
// the content back before it returns.
func (s *Service) Create(ctx context.Context, p berth.ProjectID, r *Record, write func(io.Writer) (layer.Made,
	error)) error {
	snap := r.Snapshot
	snap.ID, snap.Object, snap.CreatedAt = cmp.Or(snap.ID, berth.SnapshotID(berth.NewID(berth.PrefixSnapshot))),
		"container.snapshot", s.opts.Clock.Now().Unix()
	at, key := ref(p, snap.ID), blob.NewKey()
	return s.blobs.Create(ctx, blob.Creation{Ref: at,
		Admit: func(ctx context.Context) error { return s.admit(ctx, p, snap) },
		Write: func(ctx context.Context) error {
			err := s.contents.Write(ctx, at, key, func(w io.Writer) error { return compress(w, snap, write) })
			if err != nil {
				return err
			}
			return s.verify(ctx, at, snap, key)
		},
		Save: func(ctx context.Context) error {
			r.Key = blob.SealKey(s.opts.Seal, key[:], bound(at))
			return s.records.Create(ctx, at, snap.CreatedAt, snap.ExpiresAt, r)
		},
		Entry: func() audit.Entry {
			return audit.Entry{Action: audit.SnapshotCreated, Project: p, Container: snap.ContainerID, Object: at.ID,
				Bytes: snap.Bytes}
		}})
}

// width is how many goroutines compress or decompress a content. With more than one, this
// happens while other data is read, sealed and written.
const width = 2

// piece is the size in bytes of the reads of verify.
const piece = 256 << 10

// compress writes the content of a snapshot to w and sets its digest and size.
func compress(w io.Writer, snap *berth.Snapshot, write func(io.Writer) (layer.Made, error)) error {
	packed, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(width))
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	made, err := write(packed)
	if err != nil {
		return err
	}
	snap.Digest, snap.Bytes = made.Digest, made.Bytes
	if err := packed.Close(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	return nil
}

// verify reads a content in the same way as the start of a container.
func (s *Service) verify(ctx context.Context, at blob.Ref, snap *berth.Snapshot, key blob.Key) (err error) {
	if snap.StoredBytes, err = s.contents.Size(ctx, at); err != nil {
		return err
	}
	content, err := s.open(ctx, at, snap, key)
	if err != nil {
		return err
	}
	defer content.Close()
	sum, buf := sha256.New(), make([]byte, piece)
	in := tar.NewReader(io.TeeReader(content, sum))
	for err == nil {
		if _, err = in.Next(); err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{in}, buf)
		}
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the snapshot back: %w", err)
	}
	if _, err := io.Copy(sum, content); err != nil {
		return fmt.Errorf("read the snapshot back: %w", err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != snap.Digest {
		return fmt.Errorf("the snapshot's digest is %s, but was %s when it was written", got, snap.Digest)
	}
	return nil
}

// Get returns a snapshot.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) (*berth.Snapshot, error) {
	r, err := s.Record(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return r.Snapshot, nil
}

// Record returns a snapshot as it is stored.
func (s *Service) Record(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) (*Record, error) {
	r, err := s.records.Get(ctx, ref(p, id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Snapshot", id)
	}
	return r, err
}

// Extend moves the expiry of a snapshot that expires before until to until, even if it has
// expired and is not deleted yet. The ExpiresAt that clients see does not change.
func (s *Service) Extend(ctx context.Context, p berth.ProjectID, id berth.SnapshotID, until time.Time) error {
	err := s.records.Extend(ctx, ref(p, id), until)
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Snapshot", id)
	}
	return err
}

// List returns one page of snapshots and whether there is more. For an unknown page.After it
// returns store.ErrNotFound.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Snapshot, bool, error) {
	records, more, err := s.records.List(ctx, p, page)
	if err != nil {
		return nil, false, err
	}
	all := make([]*berth.Snapshot, len(records))
	for i, r := range records {
		all[i] = r.Snapshot
	}
	return all, more, nil
}

// Totals returns how many snapshots of all projects are stored and their stored bytes. It
// includes snapshots that are being made.
func (s *Service) Totals(ctx context.Context) (count int, bytes int64, err error) {
	return s.contents.Totals(ctx)
}

// Open opens the content of a snapshot, a layer. Reading returns what was written, or ends with
// an error: berth.CodeCorrupt if it is missing or damaged. The caller closes it.
func (s *Service) Open(ctx context.Context, p berth.ProjectID, r *Record) (io.ReadCloser, error) {
	at := ref(p, r.Snapshot.ID)
	key, err := blob.OpenKey(s.opts.Seal, r.Key, bound(at), len(blob.Key{}))
	if err != nil {
		return nil, fmt.Errorf("open snapshot %s: %w", at.ID, err)
	}
	return s.open(ctx, at, r.Snapshot, blob.Key(key))
}

func (s *Service) open(ctx context.Context, at blob.Ref, snap *berth.Snapshot, key blob.Key) (io.ReadCloser, error) {
	packed, err := s.contents.Open(ctx, at, key, snap.StoredBytes)
	if err != nil {
		return nil, err
	}
	content, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(width))
	if err != nil {
		return nil, errors.Join(err, packed.Close())
	}
	return &unpackedReader{content.IOReadCloser(), packed}, nil
}

// unpackedReader is a content that is decompressed while it is read.
type unpackedReader struct {
	io.ReadCloser
	packed io.Closer
}

func (u *unpackedReader) Close() error { return errors.Join(u.ReadCloser.Close(), u.packed.Close()) }

// Delete deletes a snapshot.
func (s *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) error {
	err := s.delete(ctx, ref(p, id), "deleted")
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Snapshot", id)
	}
	return err
}

func (s *Service) delete(ctx context.Context, r blob.Ref, reason string) error {
	return s.blobs.Delete(ctx, r, audit.Entry{Action: audit.SnapshotDeleted, Project: r.Project, Object: r.ID,
		Reason: reason})
}

// Expire deletes the snapshots of all projects that have expired by now.
func (s *Service) Expire(ctx context.Context, now time.Time) error {
	return s.blobs.Expire(ctx, now, func(ctx context.Context, r blob.Ref) error { return s.delete(ctx, r, "expired") })
}

// Sweep removes contents without a record, which a crash may leave. No snapshot may be created
// during the sweep.
func (s *Service) Sweep(ctx context.Context) error { return s.contents.Sweep(ctx, s.records) }

// Collect removes contents without a record that were complete before a time. It may run while
// snapshots are created, if no creation lasts from before that time.
func (s *Service) Collect(ctx context.Context, before time.Time) error {
	return s.contents.Collect(ctx, s.records, before)
}

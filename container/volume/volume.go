// Package volume stores volumes: file systems that outlive the containers that use them.
//
// A volume is an ext4 file system in a sparse file, mounted through a loop device while it is
// used. Its size is therefore a hard limit, without quotas of the host's file system. Its
// content is encrypted with a key of its own, sealed in the record: once the record is deleted,
// remains of the file cannot be decrypted.
package volume

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
	"github.com/berth-run/berth/store"
)

// Kind is the kind of a volume's object.
const Kind = store.KindVolume

// Bounds on volumes.
const (
	MinBytes     = 16 << 20
	MaxBytes     = 1 << 40
	DefaultBytes = 10 << 30

	maxVolumes = 100 // per project
	maxMounts  = 16  // per container
)

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Options are a Service's parts.
type Options struct {
	Dir     string // on the host, for volumes only; created if missing
	Objects store.Objects
	Seal    cipher.AEAD // for the keys; from seal.New

	// Quota returns an error for the client if a project may not store that many more bytes;
	// nil means no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	// Space returns an error for the client while the host's disk has no space for more content of
	// volumes; nil means that it is not checked.
	Space func() error

	Audit *audit.Log   // nil: no audit
	Log   *slog.Logger // default slog.Default
	Clock clock.Clock  // default: that of the system

	// Plain makes volumes ordinary directories, without a limit, encryption or measurement. It
	// is for tests, which may not mount.
	Plain bool
}

// A Service stores volumes. It is safe for concurrent use. Its errors for clients are
// *berth.Error.
type Service struct {
	opts    Options
	records blob.Objects[record]
	blobs   *blob.Collection

	mu     sync.Mutex // held while volumes are created, mounted and deleted
	users  map[berth.VolumeID]map[berth.ContainerID]bool
	visits map[berth.VolumeID]map[*visit]bool // running calls of Visit
	used   map[berth.VolumeID]time.Time       // time of last use
}

// New returns a service.
func New(opts Options) (*Service, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create directory of volumes: %w", err)
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	l := &Service{opts: opts, records: records(opts.Objects), users: map[berth.VolumeID]map[berth.ContainerID]bool{},
		visits: map[berth.VolumeID]map[*visit]bool{}, used: map[berth.VolumeID]time.Time{}}
	l.blobs = blob.NewCollection(blob.Options{Noun: "volume", Records: l.records, Remove: l.remove, Audit: opts.Audit})
	return l, nil
}

func records(objects store.Objects) blob.Objects[record] {
	return blob.Objects[record]{Store: objects, Kind: Kind}
}

// record is a volume as it is stored.
type record struct {
	Volume *berth.Volume `json:"volume"`
	Key    []byte        `json:"key"` // sealed
}

func ref(p berth.ProjectID, id berth.VolumeID) blob.Ref { return blob.Ref{Project: p, ID: string(id)} }

// bound returns the associated data that binds a sealed key to its volume.
func bound(p berth.ProjectID, id berth.VolumeID) []byte {
	return []byte("volume\x00" + string(p) + "\x00" + string(id))
}

func (l *Service) image(p berth.ProjectID, id berth.VolumeID) image {
	dir := filepath.Join(l.opts.Dir, string(p), string(id))
	return image{path: dir + imageSuffix, dir: dir, plain: l.opts.Plain}
}

const imageSuffix = ".img"

// A CreateRequest describes a volume.
type CreateRequest struct {
	Name      string
	MaxBytes  int64  // default DefaultBytes
	ExpiresAt *int64 // Unix seconds; nil means never
}

// Create makes a volume.
func (l *Service) Create(ctx context.Context, c berth.Caller, req CreateRequest) (*berth.Volume, error) {
	v := &berth.Volume{ID: berth.VolumeID(berth.NewID(berth.PrefixVolume)), Object: "volume",
		CreatedAt: l.opts.Clock.Now().Unix(),
		ExpiresAt: req.ExpiresAt, Name: req.Name, MaxBytes: req.MaxBytes}
	if v.MaxBytes == 0 {
		v.MaxBytes = DefaultBytes
	}
	switch {
	case !namePattern.MatchString(v.Name):
		return nil, berth.Invalid("name", "Invalid 'name': expected a string that matches the pattern '%s'.",
			namePattern)
	case v.MaxBytes < MinBytes || v.MaxBytes > MaxBytes:
		return nil, berth.Invalid("max_bytes", "Invalid 'max_bytes': expected an integer from %d to %d.", MinBytes,
			int64(MaxBytes))
	case v.ExpiresAt != nil && *v.ExpiresAt <= v.CreatedAt:
		return nil, berth.Invalid("expires_at", "Invalid 'expires_at': expected a time in the future.")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.mayCreate(ctx, c.Project, v); err != nil {
		return nil, err
	}
	k := host.NewSealKey()
	if err := l.image(c.Project, v.ID).create(ctx, v.MaxBytes, k); err != nil {
		return nil, unavailable(err)
	}
	err := l.save(ctx, c.Project, v, k)
	if err != nil {
		// if the removal fails, the next Sweep removes it
		return nil, errors.Join(err, l.image(c.Project, v.ID).remove(context.WithoutCancel(ctx)))
	}
	l.opts.Audit.Record(audit.Entry{Action: audit.VolumeCreated, Project: c.Project, Key: c.Key, Object: string(v.ID),
		Name: v.Name, Bytes: v.MaxBytes})
	return v, nil
}

func unavailable(err error) error {
	return &berth.Error{Code: berth.CodeUnavailable, Message: "This server cannot store volumes.", Err: err}
}

func (l *Service) mayCreate(ctx context.Context, p berth.ProjectID, v *berth.Volume) error {
	all, _, err := l.records.List(ctx, p, store.Page{Limit: maxVolumes})
	if err != nil {
		return err
	}
	if len(all) >= maxVolumes {
		return berth.Errorf(berth.CodeRateLimited, "A project has at most %d volumes. Delete one.", maxVolumes)
	}
	for _, r := range all {
		if r.Volume.Name == v.Name {
			return berth.Invalid("name", "The project has a volume with the name '%s' already.", v.Name)
		}
	}
	if l.opts.Quota != nil {
		return l.opts.Quota(ctx, p, v.MaxBytes)
	}
	return nil
}

func (l *Service) save(ctx context.Context, p berth.ProjectID, v *berth.Volume, k host.SealKey) error {
	sealed := blob.SealKey(l.opts.Seal, k[:], bound(p, v.ID))
	return l.records.Create(ctx, ref(p, v.ID), v.CreatedAt, v.ExpiresAt, &record{v, sealed})
}

// StoredBytes returns how many bytes the volumes of a project may use.
func StoredBytes(ctx context.Context, objects store.Objects, p berth.ProjectID) (int64, error) {
	var sum int64
	for r, err := range records(objects).All(ctx, p) {
		if err != nil {
			return 0, err
		}
		sum += r.Volume.MaxBytes
	}
	return sum, nil
}

// get returns a volume as it is stored.
func (l *Service) get(ctx context.Context, p berth.ProjectID, id berth.VolumeID) (*record, error) {
	r, err := l.records.Get(ctx, ref(p, id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Volume", id)
	}
	return r, err
}

// Get returns a volume.
func (l *Service) Get(ctx context.Context, p berth.ProjectID, id berth.VolumeID) (*berth.Volume, error) {
	r, err := l.get(ctx, p, id)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.Volume, l.measure(p, r)
}

// measure sets the used bytes of a volume.
func (l *Service) measure(p berth.ProjectID, r *record) error {
	if _, err := l.open(p, r); err != nil {
		return err
	}
	var err error
	r.Volume.Bytes, err = l.image(p, r.Volume.ID).used()
	return err
}

// open mounts a volume and returns the directory with its content.
func (l *Service) open(p berth.ProjectID, r *record) (string, error) {
	key, err := blob.OpenKey(l.opts.Seal, r.Key, bound(p, r.Volume.ID), len(host.SealKey{}))
	if err != nil {
		return "", fmt.Errorf("open volume %s: %w", r.Volume.ID, err)
	}
	l.used[r.Volume.ID] = l.opts.Clock.Now()
	return l.image(p, r.Volume.ID).open(host.SealKey(key))
}

// List returns one page of volumes and whether there is more. For an unknown page.After it
// returns store.ErrNotFound.
func (l *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Volume, bool, error) {
	records, more, err := l.records.List(ctx, p, page)
	if err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	volumes := make([]*berth.Volume, len(records))
	for i, r := range records {
		if err := l.measure(p, r); err != nil {
			return nil, false, err
		}
		volumes[i] = r.Volume
	}
	return volumes, more, nil
}

// Delete deletes a volume. It returns an error for the client if a container uses it, or a call of
// Visit, which it ends: a later Delete succeeds.
func (l *Service) Delete(ctx context.Context, c berth.Caller, id berth.VolumeID) error {
	r, err := l.get(ctx, c.Project, id)
	if err != nil {
		return err
	}
	return l.delete(ctx, c, r, "deleted")
}

func (l *Service) delete(ctx context.Context, c berth.Caller, r *record, reason string) error {
	id := r.Volume.ID
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.users[id]); n > 0 {
		return berth.Errorf(berth.CodeConflict, "Volume with id '%s' is in use by %d containers. Delete them first.",
			id, n)
	}
	if l.endVisits(id) {
		return berth.Errorf(berth.CodeConflict,
			"Volume with id '%s' is in use by requests for its files, which end now. Send the request again in a moment.", id)
	}
	err := l.blobs.Delete(ctx, ref(c.Project, id), audit.Entry{Action: audit.VolumeDeleted, Project: c.Project,
		Key: c.Key, Object: string(id), Name: r.Volume.Name, Reason: reason})
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Volume", id)
	}
	if err == nil {
		delete(l.used, id)
	}
	return err
}

// remove removes the content of a volume.
func (l *Service) remove(ctx context.Context, r blob.Ref) error {
	return l.image(r.Project, berth.VolumeID(r.ID)).remove(context.WithoutCancel(ctx))
}

// Expire deletes the volumes of all projects that have expired by now and that no container
// uses.
func (l *Service) Expire(ctx context.Context, now time.Time) error {
	return l.blobs.Expire(ctx, now, func(ctx context.Context, at blob.Ref) error {
		r, err := l.get(ctx, at.Project, berth.VolumeID(at.ID))
		if err != nil {
			return err
		}
		return l.delete(ctx, berth.Caller{Project: at.Project}, r, "expired")
	})
}

// Sweep removes contents without a record, which a crash may leave. No volume may be created
// during the sweep.
func (l *Service) Sweep(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(l.opts.Dir, "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		at := blob.Ref{Project: berth.ProjectID(filepath.Base(filepath.Dir(path))),
			ID: strings.TrimSuffix(filepath.Base(path), imageSuffix)}
		exists, err := l.records.Exists(ctx, at)
		if err == nil && !exists {
			if err = l.remove(ctx, at); err == nil && !strings.HasSuffix(path, imageSuffix) {
				err = l.opts.Audit.Commit(ctx, audit.Entry{Action: audit.VolumeDeleted, Project: at.Project,
					Object: at.ID, Reason: "deleted", Recovered: true})
			}
		}
		if err == nil && exists && strings.HasSuffix(path, imageSuffix) {
			err = l.image(at.Project, berth.VolumeID(at.ID)).thaw()
		}
		if err != nil {
			l.opts.Log.Warn("failed to sweep volume", "volume", at.ID, "err", err)
		}
	}
	return nil
}

// Resolve checks the mounts of a container and completes them.
func (l *Service) Resolve(ctx context.Context, p berth.ProjectID, mounts []berth.VolumeMount) ([]berth.VolumeMount,
	error) {
	if len(mounts) > maxMounts {
		return nil, berth.Invalid("berth.volumes", "A container has at most %d volumes.", maxMounts)
	}
	all, _, err := l.records.List(ctx, p, store.Page{Limit: maxVolumes})
	if err != nil {
		return nil, err
	}
	ids := map[string]berth.VolumeID{}
	for _, r := range all {
		ids[r.Volume.Name] = r.Volume.ID
	}
	resolved := make([]berth.VolumeMount, len(mounts))
	for i, m := range mounts {
		at := fmt.Sprintf("berth.volumes[%d]", i)
		if m.VolumeID = ids[m.Name]; m.VolumeID == "" {
			return nil, &berth.Error{Code: berth.CodeNotFound, Param: at + ".name",
				Message: fmt.Sprintf("Volume '%s' not found.", m.Name)}
		}
		if m.Path == "" {
			m.Path = path.Join(berth.VolumeDir, m.Name)
		}
		if why := checkPath(m.Path); why != "" {
			return nil, berth.Invalid(at+".path", "Invalid path '%s': %s.", m.Path, why)
		}
		for _, other := range resolved[:i] {
			if within(m.Path, other.Path) || within(other.Path, m.Path) {
				return nil, berth.Invalid(at+".path",
					"Invalid path '%s': it is, contains or is below that of another volume, '%s'.", m.Path, other.Path)
			}
		}
		resolved[i] = m
	}
	return resolved, nil
}

// Hold marks the volumes of a container as in use until Release: they cannot be deleted.
func (l *Service) Hold(ctx context.Context, p berth.ProjectID, c berth.ContainerID, mounts []berth.VolumeMount) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range mounts {
		if _, err := l.get(ctx, p, m.VolumeID); err != nil {
			return err
		}
	}
	l.retain(c, mounts)
	return nil
}

// Retain is Hold for a container that has its volumes mounted already.
func (l *Service) Retain(c berth.ContainerID, mounts []berth.VolumeMount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain(c, mounts)
}

// retain implements Retain. l.mu is held.
func (l *Service) retain(c berth.ContainerID, mounts []berth.VolumeMount) {
	for _, m := range mounts {
		if l.users[m.VolumeID] == nil {
			l.users[m.VolumeID] = map[berth.ContainerID]bool{}
		}
		l.users[m.VolumeID][c] = true
	}
}

// Release undoes Hold for a container.
func (l *Service) Release(c berth.ContainerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, users := range l.users {
		if users[c] {
			l.used[id] = l.opts.Clock.Now()
		}
		if delete(users, c); len(users) == 0 {
			delete(l.users, id)
		}
	}
}

// Open mounts the volumes of a container on the host. The container must hold them.
func (l *Service) Open(ctx context.Context, p berth.ProjectID, c berth.ContainerID,
	mounts []berth.VolumeMount) ([]sandbox.Mount, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ready []sandbox.Mount
	names := mountNames(mounts)
	for i, m := range mounts {
		r, err := l.get(ctx, p, m.VolumeID)
		if err != nil {
			return nil, err
		}
		dir, err := l.open(p, r)
		if err != nil {
			return nil, err
		}
		ready = append(ready, sandbox.Mount{Name: names[i], Volume: string(m.VolumeID), Path: dir,
			ReadOnly: m.ReadOnly})
		l.opts.Audit.Record(audit.Entry{Action: audit.VolumeMounted, Project: p, Container: c,
			Object: string(m.VolumeID), Name: m.Name})
	}
	return ready, nil
}

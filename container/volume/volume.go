// Package volume keeps volumes: file systems that outlive the containers that use
// them.
//
// A volume is an ext4 file system in a sparse file, mounted by way of a loop device
// while it is used. So its size is a wall, which no sandbox gets over and no quota of
// the host's file system is needed for, and what is in it is encrypted with a key of
// its own, sealed in the store: with the object the key goes, and what is left of the
// file on the disk means nothing.
package volume

import (
	"context"
	"crypto/cipher"
	"encoding/json"
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

	maxVolumes = 100 // of a project
	maxMounts  = 16  // of a container
)

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Options are a Service's parts.
type Options struct {
	Dir     string // on the host, for nothing else; made if need be
	Objects store.Objects
	Seal    cipher.AEAD // for the keys; as seal.New returns it

	// Quota returns an error for the client if a project may not store so many more
	// bytes; nil is no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	Audit *audit.Log // of what is made and removed; nil is none

	// Plain makes volumes directories of the volume that Dir is on: without a limit,
	// neither encrypted nor measured. For tests, which may not mount.
	Plain bool
}

// A Service keeps volumes. It is safe for concurrent use. Errors that a client may
// see are *berth.Error.
type Service struct {
	opts Options

	mu    sync.Mutex // held while volumes are made, mounted and removed
	users map[berth.VolumeID]map[berth.ContainerID]bool
	used  map[berth.VolumeID]time.Time // when it was, last
}

// New returns a library.
func New(opts Options) (*Service, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	return &Service{opts: opts, users: map[berth.VolumeID]map[berth.ContainerID]bool{}, used: map[berth.VolumeID]time.Time{}}, nil
}

// A record is a volume as it is kept.
type record struct {
	Volume *berth.Volume `json:"volume"`
	Key    []byte        `json:"key"` // sealed
}

func key(id berth.VolumeID) store.ObjectKey { return store.ObjectKey{Kind: Kind, ID: string(id)} }

// bound ties a key to its volume.
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
	ExpiresAt *int64 // Unix seconds; nil is never
}

// Create makes a volume.
func (l *Service) Create(ctx context.Context, c berth.Caller, req CreateRequest) (*berth.Volume, error) {
	v := &berth.Volume{ID: berth.VolumeID(berth.NewID(berth.PrefixVolume)), Object: "volume", CreatedAt: time.Now().Unix(),
		ExpiresAt: req.ExpiresAt, Name: req.Name, MaxBytes: req.MaxBytes}
	if v.MaxBytes == 0 {
		v.MaxBytes = DefaultBytes
	}
	switch {
	case !namePattern.MatchString(v.Name):
		return nil, berth.Invalid("name", "Invalid 'name': expected a string that matches the pattern '%s'.", namePattern)
	case v.MaxBytes < MinBytes || v.MaxBytes > MaxBytes:
		return nil, berth.Invalid("max_bytes", "Invalid 'max_bytes': expected an integer from %d to %d.", MinBytes, int64(MaxBytes))
	case v.ExpiresAt != nil && *v.ExpiresAt <= v.CreatedAt:
		return nil, berth.Invalid("expires_at", "Invalid 'expires_at': expected a time to come.")
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
		return nil, errors.Join(err, l.image(c.Project, v.ID).remove(context.WithoutCancel(ctx))) // or the next Sweep does
	}
	l.opts.Audit.Record(audit.Entry{Action: audit.VolumeCreated, Project: c.Project, Key: c.Key, Object: string(v.ID), Name: v.Name, Bytes: v.MaxBytes})
	return v, nil
}

func unavailable(err error) error {
	return &berth.Error{Code: berth.CodeUnavailable, Message: "This server cannot keep volumes.", Err: err}
}

func (l *Service) mayCreate(ctx context.Context, p berth.ProjectID, v *berth.Volume) error {
	all, err := list(ctx, l.opts.Objects, p)
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
	body, err := json.Marshal(record{v, l.opts.Seal.Seal(nil, nil, k[:], bound(p, v.ID))})
	if err != nil {
		return err
	}
	o := &store.Object{ObjectKey: key(v.ID), CreatedAt: v.CreatedAt, Body: body}
	if v.ExpiresAt != nil {
		o.ExpiresAt = *v.ExpiresAt
	}
	return l.opts.Objects.CreateObjects(ctx, p, o)
}

// list returns the records of a project's volumes.
func list(ctx context.Context, from store.Objects, p berth.ProjectID) ([]*record, error) {
	objects, _, err := from.ListObjects(ctx, p, Kind, "", store.Page{Limit: maxVolumes})
	if err != nil {
		return nil, err
	}
	all := make([]*record, len(objects))
	for i, o := range objects {
		if all[i], err = decode(o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func decode(o *store.Object) (*record, error) {
	r := &record{}
	return r, json.Unmarshal(o.Body, r)
}

// StoredBytes returns how many bytes the volumes of a project may take.
func StoredBytes(ctx context.Context, objects store.Objects, p berth.ProjectID) (int64, error) {
	all, err := list(ctx, objects, p)
	var sum int64
	for _, r := range all {
		sum += r.Volume.MaxBytes
	}
	return sum, err
}

// get returns a volume as it is kept.
func (l *Service) get(ctx context.Context, p berth.ProjectID, id berth.VolumeID) (*record, error) {
	o, err := l.opts.Objects.GetObject(ctx, p, key(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	return decode(o)
}

func notFound(id berth.VolumeID) *berth.Error {
	return berth.Errorf(berth.CodeNotFound, "Volume with id '%s' not found.", id)
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

// measure sets how many bytes of a volume are in use.
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
	plain, err := l.opts.Seal.Open(nil, nil, r.Key, bound(p, r.Volume.ID))
	if err != nil || len(plain) != len(host.SealKey{}) {
		return "", fmt.Errorf("the key of %s cannot be opened with this server's: %w", r.Volume.ID, err)
	}
	l.used[r.Volume.ID] = time.Now()
	return l.image(p, r.Volume.ID).open(host.SealKey(plain))
}

// List returns one page of volumes and whether there is more. An unknown page.After
// is store.ErrNotFound.
func (l *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Volume, bool, error) {
	objects, more, err := l.opts.Objects.ListObjects(ctx, p, Kind, "", page)
	if err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	volumes := []*berth.Volume{}
	for _, o := range objects {
		r, err := decode(o)
		if err == nil {
			err = l.measure(p, r)
		}
		if err != nil {
			return nil, false, err
		}
		volumes = append(volumes, r.Volume)
	}
	return volumes, more, nil
}

// Delete removes a volume with all that is in it, the object with its key first.
// One that a container uses is refused.
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
		return berth.Errorf(berth.CodeConflict, "Volume with id '%s' is in use by %d containers. Delete them first.", id, n)
	}
	if err := l.opts.Objects.DeleteObject(ctx, c.Project, key(id)); errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	} else if err != nil {
		return err
	}
	delete(l.used, id)
	if err := l.image(c.Project, id).remove(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("what is left of %s, which the next start removes: %w", id, err)
	}
	return l.opts.Audit.Commit(ctx, audit.Entry{Action: audit.VolumeDeleted, Project: c.Project, Key: c.Key, Object: string(id), Name: r.Volume.Name, Reason: reason})
}

// expireBatch is how many volumes are removed at once.
const expireBatch = 100

// Expire removes the volumes of all projects whose time is up and that nobody uses.
func (l *Service) Expire(ctx context.Context, now time.Time) error {
	refs, err := l.opts.Objects.ExpiredObjects(ctx, Kind, now, expireBatch)
	if err != nil {
		return err
	}
	var failed error
	for _, ref := range refs {
		r, err := l.get(ctx, ref.Project, berth.VolumeID(ref.ID))
		if err == nil {
			err = l.delete(ctx, berth.Caller{Project: ref.Project}, r, "expired")
		}
		if code := berth.ErrorCode(err); err != nil && code != berth.CodeNotFound && code != berth.CodeConflict {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Sweep removes what a crash has left of volumes that are not there. No volume may
// be in the making meanwhile.
func (l *Service) Sweep(ctx context.Context, log *slog.Logger) error {
	paths, err := filepath.Glob(filepath.Join(l.opts.Dir, "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		p, id := berth.ProjectID(filepath.Base(filepath.Dir(path))), berth.VolumeID(strings.TrimSuffix(filepath.Base(path), imageSuffix))
		_, err := l.opts.Objects.GetObject(ctx, p, key(id))
		if errors.Is(err, store.ErrNotFound) {
			if err = l.image(p, id).remove(ctx); err == nil && path != l.image(p, id).path {
				err = l.opts.Audit.Commit(ctx, audit.Entry{Action: audit.VolumeDeleted, Project: p, Object: string(id), Reason: "deleted", Recovered: true})
			}
		}
		if err != nil {
			log.Warn("a volume was not swept", "volume", id, "err", err)
		}
	}
	return nil
}

// Resolve checks what a container is to mount, and completes it.
func (l *Service) Resolve(ctx context.Context, p berth.ProjectID, mounts []berth.VolumeMount) ([]berth.VolumeMount, error) {
	if len(mounts) > maxMounts {
		return nil, berth.Invalid("berth.volumes", "A container has at most %d volumes.", maxMounts)
	}
	all, err := list(ctx, l.opts.Objects, p)
	if err != nil {
		return nil, err
	}
	ids := map[string]berth.VolumeID{}
	for _, r := range all {
		ids[r.Volume.Name] = r.Volume.ID
	}
	taken := map[string]bool{}
	resolved := make([]berth.VolumeMount, len(mounts))
	for i, m := range mounts {
		at := fmt.Sprintf("berth.volumes[%d]", i)
		if m.VolumeID = ids[m.Name]; m.VolumeID == "" {
			return nil, &berth.Error{Code: berth.CodeNotFound, Param: at + ".name", Message: fmt.Sprintf("Volume '%s' not found.", m.Name)}
		}
		if m.Path == "" {
			m.Path = path.Join(berth.VolumeDir, m.Name)
		}
		if path.Dir(m.Path) != berth.VolumeDir || !namePattern.MatchString(path.Base(m.Path)) || path.Clean(m.Path) != m.Path || taken[m.Path] {
			return nil, berth.Invalid(at+".path", "Invalid path: expected '%s/' and a name, each once.", berth.VolumeDir)
		}
		taken[m.Path] = true
		resolved[i] = m
	}
	return resolved, nil
}

// Hold keeps the volumes of a container from being removed, until Release.
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

// Retain keeps the volumes of a container that has mounted them from being removed, until
// Release.
func (l *Service) Retain(c berth.ContainerID, mounts []berth.VolumeMount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain(c, mounts)
}

// retain is Retain. l.mu is held.
func (l *Service) retain(c berth.ContainerID, mounts []berth.VolumeMount) {
	for _, m := range mounts {
		if l.users[m.VolumeID] == nil {
			l.users[m.VolumeID] = map[berth.ContainerID]bool{}
		}
		l.users[m.VolumeID][c] = true
	}
}

// Release takes back what Hold did for a container.
func (l *Service) Release(c berth.ContainerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, users := range l.users {
		if users[c] {
			l.used[id] = time.Now()
		}
		if delete(users, c); len(users) == 0 {
			delete(l.users, id)
		}
	}
}

// Open makes the volumes of a container, which holds them, ready to be mounted.
func (l *Service) Open(ctx context.Context, p berth.ProjectID, c berth.ContainerID, mounts []berth.VolumeMount) ([]sandbox.Mount, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ready []sandbox.Mount
	for _, m := range mounts {
		r, err := l.get(ctx, p, m.VolumeID)
		if err != nil {
			return nil, err
		}
		dir, err := l.open(p, r)
		if err != nil {
			return nil, err
		}
		ready = append(ready, sandbox.Mount{Name: path.Base(m.Path), Volume: string(m.VolumeID), Path: dir, ReadOnly: m.ReadOnly})
		l.opts.Audit.Record(audit.Entry{Action: audit.VolumeMounted, Project: p, Container: c, Object: string(m.VolumeID), Name: m.Name})
	}
	return ready, nil
}

package build

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// filesGrace is how long the files of a COPY step stay for a build that a client is about to start.
const filesGrace = 10 * time.Minute

// A Spare is data of a project that a later build makes again: a cached result, an image, or a template that was not
// used for Options.Idle.
type Spare struct {
	What   string // for the log
	Bytes  int64
	UsedAt time.Time

	// Remove removes the data. It returns ErrInUse if they are in use by now.
	Remove func(ctx context.Context) error
}

// ErrInUse is returned by Spare.Remove.
var ErrInUse = errors.New("it is in use")

// MakeRoom removes spare data of a project, or of all projects if p is empty, until need bytes are free: first what was
// not used for the longest time. It reports whether it has removed any. Concurrent calls wait for each other.
func (d *Service) MakeRoom(ctx context.Context, p berth.ProjectID, need int64) bool {
	d.sparing.Lock()
	defer d.sparing.Unlock()
	var freed int64
	removed, more := 0, true
	for more && freed < need { // without a template, its image is spare, too
		more = false
		all, err := d.spares(ctx, p)
		if err != nil {
			d.Log.Error("failed to list what builds can make again", "project", p, "err", err)
		}
		slices.SortStableFunc(all, func(a, b Spare) int { return a.UsedAt.Compare(b.UsedAt) })
		for _, s := range all {
			if freed >= need {
				break
			}
			err := s.Remove(ctx)
			if errors.Is(err, ErrInUse) {
				continue
			}
			if err != nil {
				d.Log.Error("failed to remove what builds can make again", "what", s.What, "project", p, "err", err)
				continue
			}
			freed, more = freed+s.Bytes, true
			removed++
		}
	}
	if removed > 0 {
		d.Log.Info("removed what builds can make again, to make room", "project", p, "removed", removed, "bytes", freed,
			"needed", need)
	}
	return removed > 0
}

// spares returns the spare data of a project, or of all projects if p is empty. With an error, some may be missing.
func (d *Service) spares(ctx context.Context, p berth.ProjectID) ([]Spare, error) {
	all, err := d.spareResults(ctx, p)
	if d.Images != nil {
		images, failed := d.Images.Spares(ctx, p)
		all, err = append(all, images...), errors.Join(err, failed)
	}
	if d.Idle == 0 || d.Running == nil {
		return all, err
	}
	projects := []berth.ProjectID{p}
	if p == "" {
		var failed error
		projects, failed = d.Projects(ctx)
		err = errors.Join(err, failed)
	}
	used, failed := d.usedSnapshots(ctx)
	if failed != nil {
		return all, errors.Join(err, failed)
	}
	for _, p := range projects {
		templates, failed := d.spareTemplates(ctx, p, used)
		all, err = append(all, templates...), errors.Join(err, failed)
	}
	return all, err
}

// spareResults returns the cached results of a project, or of all.
func (d *Service) spareResults(ctx context.Context, p berth.ProjectID) ([]Spare, error) {
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindE2BCache, time.Unix(math.MaxInt32, 0), maxInterrupted)
	if err != nil {
		return nil, fmt.Errorf("list cached results: %w", err)
	}
	var all []Spare
	for _, ref := range refs {
		if p != "" && ref.Project != p {
			continue
		}
		o, err := d.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return all, fmt.Errorf("read cached result: %w", err)
		}
		c, err := decodeInto[cached](o)
		if err != nil {
			return all, err
		}
		s := Spare{What: "cached result", UsedAt: time.Unix(o.ExpiresAt, 0).Add(-cacheLife)}
		if c.File != "" && d.Clock.Now().Sub(s.UsedAt) < filesGrace {
			continue
		}
		s.Bytes, err = d.bytesOf(ctx, ref.Project, c.Snapshot, c.File)
		if err != nil {
			return all, err
		}
		s.Remove = func(ctx context.Context) error {
			if d.uses.held(ref.ID) {
				return ErrInUse
			}
			return d.uncache(ctx, ref.Project, ref.ObjectKey)
		}
		all = append(all, s)
	}
	return all, nil
}

// bytesOf returns what a snapshot and a file take of the storage of a project. An empty id takes nothing.
func (d *Service) bytesOf(ctx context.Context, p berth.ProjectID, snapshot berth.SnapshotID,
	file berth.FileID) (bytes int64, err error) {
	if snapshot != "" {
		snap, err := d.Snapshots.Get(ctx, p, snapshot)
		if err == nil {
			bytes += snap.StoredBytes
		} else if berth.ErrorCode(err) != berth.CodeNotFound {
			return 0, err
		}
	}
	if file != "" {
		f, err := d.Files.Get(ctx, p, file)
		if err == nil {
			bytes += f.Bytes
		} else if berth.ErrorCode(err) != berth.CodeNotFound {
			return 0, err
		}
	}
	return bytes, nil
}

// usedSnapshots returns the snapshots from which running containers were started.
func (d *Service) usedSnapshots(ctx context.Context) (map[berth.SnapshotID]bool, error) {
	running, err := d.Running(ctx)
	if err != nil {
		return nil, fmt.Errorf("list running containers: %w", err)
	}
	used := map[berth.SnapshotID]bool{}
	for _, c := range running {
		used[c.Body.Berth.FromSnapshot] = true
	}
	return used, nil
}

// spareTemplates returns the templates of a project that were not used for d.Idle. Snapshots of sandboxes are not among
// them.
func (d *Service) spareTemplates(ctx context.Context, p berth.ProjectID, used map[berth.SnapshotID]bool) ([]Spare,
	error) {
	templates, err := d.Templates(ctx, p)
	if err != nil {
		return nil, err
	}
	var all []Spare
	for _, t := range templates {
		s := Spare{What: "template " + t.ID,
			UsedAt: time.UnixMilli(max(t.CreatedAt, t.UpdatedAt, t.SpawnedAt, t.UsedAt))}
		if t.Sandbox != "" || d.Clock.Now().Sub(s.UsedAt) < d.Idle {
			continue
		}
		busy := false
		for _, id := range t.Builds {
			b, err := d.Build(ctx, p, t.ID, id)
			if berth.ErrorCode(err) == berth.CodeNotFound {
				continue
			}
			if err != nil {
				return all, err
			}
			bytes, err := d.bytesOf(ctx, p, b.Snapshot, "")
			if err != nil {
				return all, err
			}
			s.Bytes += bytes
			busy = busy || b.Status == StatusBuilding || b.Snapshot != "" && used[b.Snapshot]
		}
		if busy {
			continue
		}
		s.Remove = func(ctx context.Context) error {
			done, ok := d.uses.exclude(t.ID)
			if !ok {
				return ErrInUse
			}
			defer done()
			return d.Delete(ctx, p, t)
		}
		all = append(all, s)
	}
	return all, nil
}

// Use is like Resolve, and keeps the template from being removed until release is called. A template of the server
// needs that not: t and release are nil.
func (d *Service) Use(ctx context.Context, p berth.ProjectID, ref string) (t *Template, b *Build, release func(),
	err error) {
	if t, _, err = d.Resolve(ctx, p, ref); err != nil || t == nil {
		return nil, nil, nil, err
	}
	release = d.uses.hold(t.ID)
	if t, b, err = d.Resolve(ctx, p, ref); err != nil || t == nil { // it may have been removed before
		release()
		return nil, nil, nil, err
	}
	return t, b, release, nil
}

// uses are the templates and cached results that are in use for a moment, by id. It is safe for concurrent use.
type uses struct {
	mu       sync.Mutex
	count    map[string]int
	excluded map[string]chan struct{} // closed when others may use it again
}

// hold waits until no removal of the id runs, and holds it.
func (u *uses) hold(id string) (release func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.excluded[id] != nil {
		done := u.excluded[id]
		u.mu.Unlock()
		<-done
		u.mu.Lock()
	}
	if u.count == nil {
		u.count = map[string]int{}
	}
	u.count[id]++
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.count[id]--; u.count[id] == 0 {
			delete(u.count, id)
		}
	})
}

// held reports whether something is in use.
func (u *uses) held(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count[id] > 0
}

// exclude makes hold wait until done is called. It returns false for an id in use.
func (u *uses) exclude(id string) (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count[id] > 0 || u.excluded[id] != nil {
		return nil, false
	}
	if u.excluded == nil {
		u.excluded = map[string]chan struct{}{}
	}
	free := make(chan struct{})
	u.excluded[id] = free
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.excluded, id)
		close(free)
	}, true
}

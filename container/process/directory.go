package process

import (
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
)

// Limits of the directories that are remembered.
const (
	directoryLife  = 7 * 24 * time.Hour // without a use
	maxDirectories = 100_000
)

// directories are the working directories of sessions. They outlive containers, as the files of a user do.
type directories struct {
	clock clock.Clock
	mu    sync.Mutex
	all   map[directoryKey]directory
}

// A directoryKey is a session of a user.
type directoryKey struct {
	project       berth.ProjectID
	user, session string
}

type directory struct {
	path string
	used time.Time
}

// Dir returns the working directory of a session, or "" if it has none.
func (s *Service) Dir(o Owner) string {
	d := &s.dirs
	d.mu.Lock()
	defer d.mu.Unlock()
	key := directoryKey{o.Project, o.User, o.Session}
	found, ok := d.all[key]
	switch now := d.clock.Now(); {
	case !ok:
		return ""
	case now.Sub(found.used) > directoryLife:
		delete(d.all, key)
		return ""
	default:
		d.all[key] = directory{found.path, now}
	}
	return found.path
}

// SetDir sets the working directory of a session. Without a session, it does nothing.
func (s *Service) SetDir(o Owner, path string) {
	if o.Session == "" {
		return
	}
	d := &s.dirs
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if len(d.all) >= maxDirectories {
		d.thin(now)
	}
	d.all[directoryKey{o.Project, o.User, o.Session}] = directory{path, now}
}

// thin forgets directories that were not used for long, and any others if these are too few. The caller holds mu.
func (d *directories) thin(now time.Time) {
	for key, dir := range d.all {
		if now.Sub(dir.used) > directoryLife {
			delete(d.all, key)
		}
	}
	for key := range d.all {
		if len(d.all) < maxDirectories/10*9 {
			return
		}
		delete(d.all, key)
	}
}

package container

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// collectTimeout bounds the collection of new files after a call.
const collectTimeout = time.Minute

// collect saves rows for the files that a call changed, in the background, while the model
// runs. If the guest reported all changes, collect saves these. Otherwise it scans the files;
// calls that end together share one scan. In crowded containers, and for changes between calls,
// List saves the rows.
func (fl *Files) collect(s *instance, changes guest.ShellEvent) {
	known := changes.Kind == guest.ShellChanges && changes.MoreFiles == 0
	if known && len(changes.Files) == 0 {
		return
	}
	// The report suffices only if there is room for the rows and earlier files have theirs.
	known = known && s.files.rows.Load() > 0 && int(s.files.rows.Load())+len(changes.Files) <= fl.opts.Bounds.Files
	if !known && (s.files.crowded.Load() || !s.files.collecting.CompareAndSwap(false, true)) {
		return
	}
	fl.work.spawn(func() {
		ctx, cancel := fl.opts.clock.WithTimeout(s.life, collectTimeout)
		defer cancel()
		err := s.files.lock.acquire(ctx)
		if !known {
			s.files.collecting.Store(false) // this scan may miss files made from here on
		}
		if err == nil {
			defer s.files.lock.release()
			switch {
			case s.isPaused(): // the next list saves the rows
			case known:
				err = fl.apply(ctx, s, changes.Files)
			default:
				_, err = fl.scan(ctx, s)
			}
		}
		if err != nil && s.life.Err() == nil {
			fl.opts.Log.Warn("failed to collect new files", "container", s.id, "err", err)
		}
	})
}

// apply saves the changes of a call. The caller has acquired s.files.lock.
func (fl *Files) apply(ctx context.Context, s *instance, changes []guest.FileChange) error {
	found, deleted := map[string]guest.Entry{}, map[string]bool{}
	for _, c := range changes {
		at := path.Join(berth.WorkDir, c.Path)
		switch {
		case !isListed(c.Path) || !guest.Below(berth.WorkDir, at):
		case c.Kind == guest.FileCreated:
			found[at] = guest.Entry{Size: c.Bytes, Modified: time.Unix(c.Modified, 0)}
		case c.Kind == guest.FileDeleted:
			deleted[at] = true
		}
	}
	gone, err := fl.gone(ctx, s, deleted)
	if err != nil {
		return err
	}
	made := fl.newFiles(s, found)
	s.files.rows.Add(int64(len(made)))
	return fl.save(ctx, s, made, gone)
}

// isListed reports whether a scan lists a regular file of this name. The guest reports
// names that are not UTF-8 with replacement characters.
func isListed(name string) bool {
	return strings.Count(name, "/") < maxDepth && !strings.HasPrefix(path.Base(name), tempPrefix) &&
		!strings.ContainsRune(name, utf8.RuneError)
}

// gone returns the rows of deleted files. It reads each file again, because a new one may
// be at its path.
func (fl *Files) gone(ctx context.Context, s *instance, deleted map[string]bool) (gone []*berth.ContainerFile,
	err error) {
	if len(deleted) == 0 {
		return nil, nil
	}
	known, err := fl.opts.Store.ContainerFiles(ctx, s.project, s.id)
	if err != nil {
		return nil, fmt.Errorf("list file rows: %w", err)
	}
	for _, f := range known {
		if !deleted[f.Path] {
			continue
		}
		switch err := s.stat(ctx, f); {
		case err == nil:
		case isAnswer(err):
			gone = append(gone, f)
		default:
			return nil, fl.leases.explain(ctx, s, err)
		}
	}
	return gone, nil
}

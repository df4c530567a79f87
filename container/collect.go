package container

import (
	"context"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// collectTime bounds looking for new files after a call.
const collectTime = time.Minute

// collect gives ids to the files that commands made, in the background: the model
// thinks meanwhile. They are those that the guest has told, if it has told all; else
// there is a look, which calls that end together share. Where looking takes long, and
// of what was made between calls, it is left to whoever asks for the files.
func (fl *Files) collect(s *instance, told guest.ShellEvent) {
	known := told.Kind == guest.ShellChanges && told.MoreFiles == 0
	if known && len(told.Files) == 0 {
		return
	}
	// So many rows there may be, and those that were there before are known.
	known = known && s.files.rows.Load() > 0 && int(s.files.rows.Load())+len(told.Files) <= fl.opts.Bounds.Files
	if !known && (s.files.crowded.Load() || !s.files.collecting.CompareAndSwap(false, true)) {
		return
	}
	fl.work.spawn(func() {
		ctx, cancel := context.WithTimeout(s.life, collectTime)
		defer cancel()
		err := s.files.lock.acquire(ctx)
		if !known {
			s.files.collecting.Store(false) // what is made from now on, this look may miss
		}
		if err == nil {
			defer s.files.lock.release()
			switch {
			case s.isPaused(): // left to whoever asks for the files
			case known:
				err = fl.apply(ctx, s, told.Files)
			default:
				_, err = fl.scan(ctx, s)
			}
		}
		if err != nil && s.life.Err() == nil {
			fl.opts.Log.Warn("new files were not looked for", "container", s.id, "err", err)
		}
	})
}

// follow makes the store's files of a container follow what a call has changed. The
// caller has taken s.files.
func (fl *Files) apply(ctx context.Context, s *instance, changes []guest.FileChange) error {
	found, deleted := map[string]guest.Entry{}, map[string]bool{}
	for _, c := range changes {
		at := path.Join(berth.WorkDir, c.Path)
		switch {
		case !listed(c.Path) || !guest.Below(berth.WorkDir, at):
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

// listed reports whether a scan would list a regular file of this name. The guest
// cannot say names that are not UTF-8: it replaces what is wrong in them.
func listed(name string) bool {
	return strings.Count(name, "/") < maxDepth && !strings.HasPrefix(path.Base(name), tempPrefix) && !strings.ContainsRune(name, utf8.RuneError)
}

// gone returns the files that the store has for paths at which there is none any more:
// meanwhile there may be another.
func (fl *Files) gone(ctx context.Context, s *instance, deleted map[string]bool) (gone []*berth.ContainerFile, err error) {
	if len(deleted) == 0 {
		return nil, nil
	}
	known, err := fl.opts.Store.ContainerFiles(ctx, s.project, s.id)
	if err != nil {
		return nil, err
	}
	for _, f := range known {
		if !deleted[f.Path] {
			continue
		}
		switch err := s.stat(ctx, f); {
		case err == nil:
		case answered(err):
			gone = append(gone, f)
		default:
			return nil, fl.leases.explain(ctx, s, err)
		}
	}
	return gone, nil
}

package snapshot

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// room returns an error if there is none for a snapshot and its StoredBytes.
func (l *Service) room(ctx context.Context, p berth.ProjectID, s *berth.Snapshot) error {
	if l.opts.Quota != nil {
		if err := l.opts.Quota(ctx, p, s.StoredBytes); err != nil {
			return err
		}
	}
	if l.opts.Count == nil || s.Cause == berth.SnapshotForked {
		return nil
	}
	kept := 0
	err := each(ctx, l.opts.Objects, p, func(s *berth.Snapshot) {
		if s.Cause != berth.SnapshotForked {
			kept++
		}
	})
	if err != nil {
		return err
	}
	return l.opts.Count(ctx, p, kept)
}

// StoredBytes returns how many bytes the snapshots of a project take.
func StoredBytes(ctx context.Context, objects store.Objects, p berth.ProjectID) (int64, error) {
	var sum int64
	err := each(ctx, objects, p, func(s *berth.Snapshot) { sum += s.StoredBytes })
	return sum, err
}

// each calls f with all snapshots of a project.
func each(ctx context.Context, from store.Objects, p berth.ProjectID, f func(*berth.Snapshot)) error {
	for page := (store.Page{Limit: 1000}); ; {
		objects, more, err := from.ListObjects(ctx, p, Kind, "", page)
		if err != nil {
			return err
		}
		for _, o := range objects {
			r, err := decode(o)
			if err != nil {
				return err
			}
			f(r.Snapshot)
			page.After = o.ID
		}
		if !more {
			return nil
		}
	}
}

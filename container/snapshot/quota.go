package snapshot

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// admit returns an error for the client if the project may not store the snapshot and its
// StoredBytes.
func (s *Service) admit(ctx context.Context, p berth.ProjectID, snap *berth.Snapshot) error {
	if s.opts.Quota != nil {
		if err := s.opts.Quota(ctx, p, snap.StoredBytes); err != nil {
			return err
		}
	}
	if s.opts.Count == nil {
		return nil
	}
	stored := 0
	for _, err := range s.records.All(ctx, p) {
		if err != nil {
			return err
		}
		stored++
	}
	return s.opts.Count(ctx, p, stored)
}

// StoredBytes returns the stored size of a project's snapshots in bytes.
func StoredBytes(ctx context.Context, objects store.Objects, p berth.ProjectID) (int64, error) {
	var sum int64
	for r, err := range records(Options{Objects: objects, Clock: clock.System}).All(ctx, p) {
		if err != nil {
			return 0, err
		}
		sum += r.Snapshot.StoredBytes
	}
	return sum, nil
}

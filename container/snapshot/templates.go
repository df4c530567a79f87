package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth/store"
)

// Templates returns the digests of the templates that snapshots of all projects are based
// on.
func (s *Service) Templates(ctx context.Context) (map[string]bool, error) {
	digests := map[string]bool{}
	for at, err := range s.contents.All(ctx) {
		if err != nil {
			return nil, err
		}
		r, err := s.records.Get(ctx, at)
		if errors.Is(err, store.ErrNotFound) {
			continue // it is being made of a running container, or was just deleted
		}
		if err != nil {
			return nil, fmt.Errorf("read snapshot %s: %w", at.ID, err)
		}
		digests[r.Snapshot.Template] = true
	}
	return digests, nil
}

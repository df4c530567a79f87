package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Templates returns the digests of the templates that snapshots of all projects lie
// above.
func (l *Service) Templates(ctx context.Context) (map[string]bool, error) {
	digests := map[string]bool{}
	for it := l.opts.Bucket.List(nil); ; {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return digests, nil
		}
		if err != nil {
			return nil, err
		}
		p, id, _ := strings.Cut(o.Key, "/")
		s, err := l.Get(ctx, berth.ProjectID(p), berth.SnapshotID(id))
		if e, ok := errors.AsType[*berth.Error](err); ok && e.Code == berth.CodeNotFound || errors.Is(err, store.ErrNotFound) {
			continue // one that is being made, of a container that runs, or was just removed
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", id, err)
		}
		digests[s.Template] = true
	}
}

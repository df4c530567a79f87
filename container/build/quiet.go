package build

import (
	"context"
	"time"

	"github.com/berth-run/berth"
)

// The patience of WhenQuiet with a container that is in use.
const (
	quietTimeout  = 3 * time.Second
	quietInterval = 50 * time.Millisecond
)

// WhenQuiet does what needs a container that is not in use. It repeats a conflict for a while: the
// client may have got the end of an answer before the call is over here.
func (d *Service) WhenQuiet(ctx context.Context, do func() error) error {
	began := d.Clock.Now()
	for {
		err := do()
		if berth.ErrorCode(err) != berth.CodeConflict || d.Clock.Since(began) > quietTimeout {
			return err
		}
		select {
		case <-d.Clock.After(quietInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

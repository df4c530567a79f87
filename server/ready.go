package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store"
)

const (
	// readyFor is how long a result is cached, because callers without a key can request it.
	readyFor  = time.Second
	readyTime = 5 * time.Second
)

// readiness checks the parts that a server needs.
type readiness struct {
	checks []readyCheck
	log    *slog.Logger

	mu   sync.Mutex
	last []api.ReadyCheck
	at   time.Time
}

// A readyCheck checks one part. Clients see advice if it fails; the error goes to the log.
type readyCheck struct {
	name   string
	check  func(context.Context) error
	advice string

	explains bool   // its *berth.Error replaces the advice
	full     string // replaces the advice if the disk is full
}

func newReadiness(db state.Database, d sandbox.Driver, template func(string) (container.Template, error),
	space *diskspace.Guard, bucket *remote.Bucket, log *slog.Logger) *readiness {
	checks := []readyCheck{
		{name: "store", check: db.CheckWrite, advice: "The database is not writable.",
			full: "The disk is full, so the database is not writable."},
		{name: "driver", check: func(ctx context.Context) error {
			_, err := d.List(ctx)
			return err
		}, advice: "The container driver does not respond."},
		{name: "template", check: func(context.Context) error {
			_, err := template("")
			return err
		}, advice: "The default template is missing. Run berth image build.", explains: true},
		{name: "disk", check: func(context.Context) error {
			return space.Err()
		}, advice: "The disk is full or nearly full, so new data is refused."},
	}
	if bucket != nil {
		checks = append(checks, readyCheck{name: "blobs", check: bucket.Check,
			advice: "The bucket of files and snapshots cannot be used."})
	}
	return &readiness{log: log, checks: checks}
}

// get returns the result of each check. It logs those that change.
func (r *readiness) get(ctx context.Context) []api.ReadyCheck {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && time.Since(r.at) < readyFor {
		return r.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTime)
	defer cancel()
	results := make([]api.ReadyCheck, len(r.checks))
	var wg sync.WaitGroup
	for i, c := range r.checks {
		wg.Go(func() {
			results[i] = api.ReadyCheck{Name: c.name, OK: true}
			if err := c.run(ctx); err != nil {
				results[i] = api.ReadyCheck{Name: c.name, Message: c.advice}
				if e, ok := errors.AsType[*berth.Error](err); ok && c.explains {
					results[i].Message, results[i].RetryAfter = e.Message, e.RetryAfter
				}
				if c.full != "" && errors.Is(err, store.ErrStorage) {
					results[i].Message = c.full
				}
				level := slog.LevelDebug
				if r.last == nil || r.last[i].OK {
					level = slog.LevelWarn
				}
				r.log.Log(ctx, level, "not ready", "check", c.name, "err", err)
			} else if r.last != nil && !r.last[i].OK {
				r.log.Info("ready again", "check", c.name)
			}
		})
	}
	wg.Wait()
	r.last, r.at = results, time.Now()
	return results
}

var errNoAnswer = errors.New("no response in time")

// run runs the check. It returns errNoAnswer if ctx ends first.
func (c readyCheck) run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- c.check(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errNoAnswer
	}
}

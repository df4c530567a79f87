package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// A Query selects entries. Empty fields match any.
type Query struct {
	Project   berth.ProjectID
	Container berth.ContainerID
	Action    Action
	Key       berth.KeyID // of a key, or a person
	Object    string
	From, To  time.Time // from the first on, and before the second; zero: at any time
	Before    int64     // only entries with smaller numbers
	Limit     int
}

func (q *Query) matches(e *Entry) bool {
	return e.Seq < q.Before && (q.Project == "" || e.Project == q.Project) &&
		(q.Container == "" || e.Container == q.Container) &&
		(q.Action == "" || e.Action == q.Action) &&
		(q.Key == "" || e.Key == q.Key) &&
		(q.Object == "" || e.Object == q.Object) &&
		!e.Time.Before(q.From) && (q.To.IsZero() || e.Time.Before(q.To))
}

// Latest returns the entries that match a query, the newest first, and whether there are more. It
// reads the record backwards, a segment at a time. One search runs at a time.
func (l *Log) Latest(ctx context.Context, q Query) (found []*Entry, more bool, err error) {
	if l == nil {
		return nil, false, nil
	}
	release, err := l.acquireSearch(ctx)
	if err != nil {
		return nil, false, err
	}
	defer release()
	segments, size, err := extent(l.w.dir)
	if err != nil {
		return nil, false, err
	}
	for i := len(segments) - 1; i >= 0 && len(found) <= q.Limit; i-- {
		if segments[i] >= q.Before {
			continue
		}
		limit := int64(-1)
		if i == len(segments)-1 {
			limit = size
		}
		var of []*Entry // the last that match
		var failed error
		entries(l.w.dir, segments[i], 0, limit, q.Container, func(e *Entry, err error) bool {
			if failed = errors.Join(err, ctx.Err()); failed != nil {
				return false
			}
			if q.matches(e) {
				of = append(of, e)
			}
			if len(of) > 2*(q.Limit+1) {
				of = append(of[:0], of[len(of)-q.Limit-1:]...)
			}
			return true
		})
		if failed != nil {
			return nil, false, failed
		}
		slices.Reverse(of)
		found = append(found, of...)
	}
	if more = len(found) > q.Limit; more {
		found = found[:q.Limit]
	}
	return found, more, nil
}

// Verify verifies the record with its own public key, as the function Verify does. The key
// proves nothing if the server that has it is not trusted: compare it with a copy that was stored
// elsewhere.
func (l *Log) Verify(ctx context.Context) (*Report, error) {
	if l == nil {
		return nil, errors.New("there is no record")
	}
	release, err := l.acquireSearch(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	key, err := PublicKey(l.w.dir)
	if err != nil {
		return nil, err
	}
	return Verify(l.w.dir, key, "")
}

// acquireSearch waits until no other search reads the record.
func (l *Log) acquireSearch(ctx context.Context) (release func(), err error) {
	select {
	case l.search <- struct{}{}:
		return func() { <-l.search }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

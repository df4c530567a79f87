package metrics

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Responses wraps st and measures its commits of events.
func (m *Metrics) Responses(st store.Responses) store.Responses { return responses{st, m} }

type responses struct {
	store.Responses
	metrics *Metrics
}

func (r responses) CreateResponse(ctx context.Context, rec *store.Response, events []store.Event, lease store.Lease,
	also ...*store.Object) error {
	start := time.Now()
	err := r.Responses.CreateResponse(ctx, rec, events, lease, also...)
	r.metrics.committed("create", start, err)
	return err
}

func (r responses) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string,
	events []store.Event, body *berth.Response, also ...*store.Object) error {
	start := time.Now()
	err := r.Responses.AppendEvents(ctx, p, id, owner, events, body, also...)
	r.metrics.committed("append", start, err)
	return err
}

func (m *Metrics) committed(operation string, start time.Time, err error) {
	if err == nil {
		m.commits.WithLabelValues(operation).Observe(time.Since(start).Seconds())
	}
}

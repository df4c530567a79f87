package metrics

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

var descSeconds = describe("container_seconds_total",
	"Running time of containers, counted each minute in the store, so that restarts do not reset it.", "project",
	"memory_limit", "isolation")

// The store's counts are read completely at intervals, because late counts may be added to the
// past. In between, only recent counts are read.
const (
	recountEvery = time.Hour
	recent       = 2 * time.Hour
)

// An allowance is a key for summing the seconds of containers.
type allowance struct {
	project berth.ProjectID
	tier    string
}

// seconds emits the running time of containers from the store.
type seconds struct {
	Sources
	projects *names

	mu      sync.Mutex
	counted time.Time // time at which past was read
	until   time.Time // end of the period that past covers
	past    map[allowance]int64
}

func (s *seconds) emit(ctx context.Context, emit emitFunc) {
	totals, err := s.read(ctx, time.Now())
	if err != nil {
		return // a sum that is too small would look like a counter reset
	}
	labelled := map[allowance]int64{}
	for a, n := range totals {
		a.project = berth.ProjectID(s.projects.label(string(a.project)))
		labelled[a] += n
	}
	for a, n := range labelled {
		emit(descSeconds, prometheus.CounterValue, float64(n), string(a.project), a.tier, s.Isolation)
	}
}

func (s *seconds) read(ctx context.Context, now time.Time) (map[allowance]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past == nil || now.Sub(s.counted) >= recountEvery {
		until := now.Add(-recent).Truncate(time.Hour)
		past, err := s.sum(ctx, time.Unix(0, 0), until, nil)
		if err != nil {
			return nil, err
		}
		s.past, s.until, s.counted = past, until, now
	}
	return s.sum(ctx, s.until, now.Add(time.Hour), s.past)
}

// sum adds the seconds used in a period to before.
func (s *seconds) sum(ctx context.Context, from, to time.Time, before map[allowance]int64) (map[allowance]int64,
	error) {
	used, err := s.Usages.Usage(ctx, store.UsageQuery{Kind: store.UsageContainer, From: from, To: to,
		Width: 100 * 365 * 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	sums := map[allowance]int64{}
	maps.Copy(sums, before)
	for _, u := range used {
		sums[allowance{u.Project, u.Name}] += u.Seconds
	}
	return sums, nil
}

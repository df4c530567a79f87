// Package quota bounds what projects may use.
//
// Rates and what is in progress are counted in this process, and begin anew with
// it. What was used in a day, and what is stored, the store knows. If the store
// cannot be asked, nothing more may be used.
package quota

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// fresh is how long the record of a project is believed. Another process, the
// command line, changes it.
const fresh = time.Second

// Options are a Quota's parts.
type Options struct {
	Objects store.Objects
	Files   store.Files
	Usages  store.Usages
	Bodies  interface { // what the store keeps beside files, such as store.Projects; default nothing
		StoredBytes(ctx context.Context, p berth.ProjectID) (int64, error)
	}

	// Limits of projects whose own record does not say; those of "" are for the
	// projects that are not named.
	Limits map[berth.ProjectID]berth.Limits
}

// A Quota bounds projects. It is safe for concurrent use. The errors for clients
// are *berth.Error: CodeRateLimited, and CodeUnauthorized for an archived project.
type Quota struct {
	opts Options

	mu    sync.Mutex // of all that follows
	known map[berth.ProjectID]*bounded
}

// A bounded project and what it uses now.
type bounded struct {
	id        berth.ProjectID
	read      time.Time // its record, last
	archived  bool
	limits    berth.Limits
	requests  bucket
	writes    bucket // requests that ask no model
	tokens    bucket
	responses int64
	pending   int64 // bytes of requests that are being answered
}

// New returns a quota.
func New(opts Options) *Quota {
	return &Quota{opts: opts, known: map[berth.ProjectID]*bounded{}}
}

// project returns what is known of a project, with its record as it is now.
func (q *Quota) project(ctx context.Context, id berth.ProjectID) (*bounded, error) {
	q.mu.Lock()
	p := q.known[id]
	if p == nil {
		p = &bounded{id: id}
		q.known[id] = p
	}
	old := time.Since(p.read) >= fresh
	q.mu.Unlock()
	if !old {
		return p, nil
	}
	now := time.Now()
	record, err := project.Get(ctx, q.opts.Objects, id)
	if err != nil {
		return nil, fmt.Errorf("the limits of %s: %w", id, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	p.read, p.archived = now, record.Status == berth.ProjectArchived
	p.limits = record.Limits.Or(q.opts.Limits[id]).Or(q.opts.Limits[""])
	return p, nil
}

// Check returns an error if the project may use nothing at all, because it is
// archived.
func (q *Quota) Check(ctx context.Context, id berth.ProjectID) error {
	p, err := q.project(ctx, id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.archived {
		return &berth.Error{Code: berth.CodeUnauthorized, Wire: "project_archived",
			Message: "The project that this API key belongs to has been archived and is no longer accessible."}
	}
	return nil
}

// Begin books a response that is thought to need so many tokens, if the project may
// store anything. end says that it
// has ended, and what it did need; it must be called once.
func (q *Quota) Begin(ctx context.Context, id berth.ProjectID, tokens int) (end func(used int), err error) {
	p, err := q.room(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	p.fill(time.Now())
	if n, limited := bound(p.limits.Responses); limited && p.responses >= n {
		err := exceeded("requests", id, "responses in progress", n, p.responses, 1)
		return nil, again(err, time.Second)
	}
	need := int64(max(tokens, 1))
	if n, limited := bound(p.limits.RequestsPerMinute); limited {
		if wait := p.requests.wait(1); wait > 0 {
			return nil, again(exceeded("requests", id, "requests per min (RPM)", n, p.requests.used(), 1), wait)
		}
	}
	if n, limited := bound(p.limits.TokensPerMinute); limited {
		switch wait := p.tokens.wait(need); {
		case wait == math.MaxInt64:
			return nil, again(&berth.Error{Code: berth.CodeRateLimited, Wire: "rate_limit_exceeded", Type: "tokens",
				Message: fmt.Sprintf("Request too large for project %s on tokens per min (TPM): Limit %d, Requested %d. "+
					"The input or output tokens must be reduced in order to run successfully.", id, n, need)}, wait)
		case wait > 0:
			return nil, again(exceeded("tokens", id, "tokens per min (TPM)", n, p.tokens.used(), need), wait)
		}
	}
	p.requests.use(1)
	p.tokens.use(need)
	p.responses++
	return func(used int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		p.responses--
		p.fill(time.Now())
		p.tokens.use(int64(used) - need)
	}, nil
}

// Resume books a response that a former process has begun.
func (q *Quota) Resume(id berth.ProjectID) (end func(used int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.known[id]
	if p == nil {
		p = &bounded{id: id}
		q.known[id] = p
	}
	p.responses++
	return func(used int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		p.responses--
		p.fill(time.Now())
		p.tokens.use(int64(used))
	}
}

// fill brings the buckets up to now. Those without a limit are empty and full.
func (p *bounded) fill(now time.Time) {
	p.requests.fill(size(p.limits.RequestsPerMinute), now)
	p.tokens.fill(size(p.limits.TokensPerMinute), now)
}

// used is what was taken out of a bucket and has not filled up.
func (b *bucket) used() int64 { return int64(math.Ceil(b.size - b.left)) }

// A Rate is how much of a limit a minute has left.
type Rate struct {
	Limit     int64
	Remaining int64
	Reset     time.Duration // until Remaining is Limit again
}

// Rates returns the rates of a project as last known, nil where there is no limit.
func (q *Quota) Rates(id berth.ProjectID) (requests, tokens *Rate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.known[id]
	if p == nil {
		return nil, nil
	}
	p.fill(time.Now())
	if _, limited := bound(p.limits.RequestsPerMinute); limited {
		requests = p.requests.rate()
	}
	if _, limited := bound(p.limits.TokensPerMinute); limited {
		tokens = p.tokens.rate()
	}
	return requests, tokens
}

// Containers returns how many containers the project may run at once, -1 for any
// number, or an error if it may not start another today.
func (q *Quota) Containers(ctx context.Context, id berth.ProjectID) (most int, err error) {
	p, err := q.project(ctx, id)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	limits := p.limits
	q.mu.Unlock()
	if n, limited := bound(limits.ContainerMinutes); limited {
		day := time.Now().UTC().Truncate(24 * time.Hour)
		tomorrow := day.Add(24 * time.Hour)
		used, err := q.opts.Usages.Usage(ctx, store.UsageQuery{Project: id, Kind: store.UsageContainer, From: day, To: tomorrow, Width: 24 * time.Hour})
		if err != nil {
			return 0, err
		}
		var seconds int64
		for _, u := range used {
			seconds += u.Seconds
		}
		if seconds/60 >= n {
			return 0, insufficient(time.Until(tomorrow), "The containers of project %s may run for %d minutes a day, and have.", id, n)
		}
	}
	n, limited := bound(limits.Containers)
	if !limited {
		return -1, nil
	}
	return int(min(n, math.MaxInt32)), nil
}

// Store returns an error if the project may not store so many more bytes. A caller
// that asks on behalf of several at once must not let them come between the answer and
// the deed.
func (q *Quota) Store(ctx context.Context, id berth.ProjectID, bytes int64) error {
	_, err := q.room(ctx, id, bytes)
	return err
}

// Full returns an error if the project may store nothing more.
func (q *Quota) Full(ctx context.Context, id berth.ProjectID) error { return q.Store(ctx, id, 0) }

// Reserve is Store for bytes that are about to be stored: until release is called,
// they count as if they were. release must be called once.
func (q *Quota) Reserve(ctx context.Context, id berth.ProjectID, bytes int64) (release func(), err error) {
	p, err := q.room(ctx, id, bytes)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	p.pending += bytes
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		p.pending -= bytes
	}, nil
}

func (q *Quota) room(ctx context.Context, id berth.ProjectID, bytes int64) (*bounded, error) {
	p, err := q.project(ctx, id)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	n, limited := bound(p.limits.StorageBytes)
	q.mu.Unlock()
	if !limited {
		return p, nil
	}
	stored, err := q.opts.Files.FileBytes(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("sum the files of %s: %w", id, err)
	}
	if q.opts.Bodies != nil {
		bodies, err := q.opts.Bodies.StoredBytes(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("sum the bodies of %s: %w", id, err)
		}
		stored += bodies
	}
	q.mu.Lock()
	stored += p.pending
	q.mu.Unlock()
	if bytes > n-stored || stored >= n {
		return nil, insufficient(0, "Project %s may store %d bytes, and has stored %d. Delete responses, conversations, files or others that are not needed.", id, n, stored)
	}
	return p, nil
}

// Write books a request that changes something and asks no model. Such requests have
// the same limit as those that do, and do not count as them.
func (q *Quota) Write(ctx context.Context, id berth.ProjectID) error {
	p, err := q.project(ctx, id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n, limited := bound(p.limits.RequestsPerMinute)
	p.writes.fill(size(p.limits.RequestsPerMinute), time.Now())
	if !limited {
		return nil
	}
	if wait := p.writes.wait(1); wait > 0 {
		return again(exceeded("requests", id, "other requests per min (RPM)", n, p.writes.used(), 1), wait)
	}
	p.writes.use(1)
	return nil
}

// Snapshots returns an error if the project, which keeps so many snapshots, may not keep
// another.
func (q *Quota) Snapshots(ctx context.Context, id berth.ProjectID, kept int) error {
	p, err := q.project(ctx, id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	n, limited := bound(p.limits.Snapshots)
	q.mu.Unlock()
	if limited && int64(kept) >= n {
		return insufficient(0, "Project %s may keep %d snapshots, and keeps %d.", id, n, kept)
	}
	return nil
}

// Limits returns what bounds the project now.
func (q *Quota) Limits(ctx context.Context, id berth.ProjectID) (berth.Limits, error) {
	p, err := q.project(ctx, id)
	if err != nil {
		return berth.Limits{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return p.limits, nil
}

// bound returns a limit, and whether there is one.
func bound(limit *int64) (int64, bool) {
	if limit == nil || *limit < 0 {
		return 0, false
	}
	return *limit, true
}

func size(limit *int64) int64 {
	n, _ := bound(limit)
	return n
}

// exceeded words a limit that was reached as OpenAI does.
func exceeded(kind string, id berth.ProjectID, what string, limit, used, requested int64) *berth.Error {
	return &berth.Error{Code: berth.CodeRateLimited, Wire: "rate_limit_exceeded", Type: kind,
		Message: fmt.Sprintf("Rate limit reached for project %s on %s: Limit %d, Used %d, Requested %d.", id, what, limit, used, requested)}
}

// again says when to try again; a wait for ever is none.
func again(err *berth.Error, wait time.Duration) *berth.Error {
	if wait == math.MaxInt64 {
		err.RetryAfter = -1
		return err
	}
	err.RetryAfter = cmp.Or(wait, time.Second)
	err.Message += fmt.Sprintf(" Please try again in %v.", err.RetryAfter)
	return err
}

// insufficient words a quota that is used up.
func insufficient(wait time.Duration, format string, args ...any) *berth.Error {
	return &berth.Error{Code: berth.CodeRateLimited, Wire: "insufficient_quota", Type: "insufficient_quota", RetryAfter: cmp.Or(wait, -1),
		Message: "You exceeded your current quota. " + fmt.Sprintf(format, args...)}
}

package project

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// cacheTTL is how long a project's record is cached. Another process, the command line,
// may change it.
const cacheTTL = time.Second

// A Size returns how many bytes a project stores of one kind of data.
type Size func(ctx context.Context, p berth.ProjectID) (int64, error)

// QuotaOptions are a Quota's parts.
type QuotaOptions struct {
	Objects store.Objects
	Usages  store.Usages
	Keys    store.Keys // for their limits; nil means that keys have none
	Sizes   []Size     // all data that counts against the storage limit

	// Limits apply if the record of a project sets none. Those of "" are the defaults for
	// all projects.
	Limits map[berth.ProjectID]berth.Limits

	Currency string // of costs, in messages
}

// A Quota limits what projects use. Rates and responses in progress are counted in this
// process and start at zero with it, unless servers of a cluster share them (Share). The usage of a day and the stored
// bytes come from the store; if it cannot be read, requests are refused.
//
// A Quota is safe for concurrent use. Its errors for clients are *berth.Error:
// CodeRateLimited, and CodeUnauthorized for an archived project.
type Quota struct {
	opts QuotaOptions

	shares *shares // nil if there are no other servers; set before the first request

	reclaim func(ctx context.Context, p berth.ProjectID, bytes int64) bool // nil: nothing; set before the first request

	mu    sync.Mutex // guards known
	known map[berth.ProjectID]*bounded
}

// bounded is a project with its limits and its current use.
type bounded struct {
	id        berth.ProjectID
	read      time.Time // when its record was read
	archived  bool
	limits    berth.Limits
	requests  bucket
	writes    bucket // requests without a model
	tokens    bucket
	responses int64
	pending   int64 // reserved bytes of requests in progress
	released  int64 // bytes of all reservations that ended

	share *share // nil if there are no other servers
}

// NewQuota returns a quota.
func NewQuota(opts QuotaOptions) *Quota {
	return &Quota{opts: opts, known: map[berth.ProjectID]*bounded{}}
}

// Reclaim makes the quota call reclaim when a project has no room for what it stores. reclaim removes data that the
// project can do without, of this many bytes if there are as many, and reports whether it has removed any. Reclaim must
// be called before the first request.
func (q *Quota) Reclaim(reclaim func(ctx context.Context, p berth.ProjectID, bytes int64) bool) {
	q.reclaim = reclaim
}

// SetLimits replaces QuotaOptions.Limits, for requests from now on.
func (q *Quota) SetLimits(limits map[berth.ProjectID]berth.Limits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opts.Limits = limits
	for _, p := range q.known {
		p.read = time.Time{}
	}
}

// addLocked adds the state of a project. q.mu is held.
func (q *Quota) addLocked(id berth.ProjectID) *bounded {
	p := &bounded{id: id}
	if q.shares != nil {
		p.share = newShare()
		p.requests.shared, p.writes.shared, p.tokens.shared = true, true, true
	}
	q.known[id] = p
	return p
}

// project returns the state of a project, with a record that is at most cacheTTL old.
func (q *Quota) project(ctx context.Context, id berth.ProjectID) (*bounded, error) {
	q.mu.Lock()
	p := q.known[id]
	if p == nil {
		p = q.addLocked(id)
	}
	old := time.Since(p.read) >= cacheTTL
	q.mu.Unlock()
	if !old {
		return p, nil
	}
	now := time.Now()
	record, err := get(ctx, q.opts.Objects, id)
	if err != nil {
		return nil, fmt.Errorf("read limits of %s: %w", id, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	p.read, p.archived = now, record.Status == berth.ProjectArchived
	p.limits = record.Limits.Or(q.opts.Limits[id]).Or(q.opts.Limits[""])
	return p, nil
}

// Check returns an error if the project is archived.
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

// Begin counts a response that is estimated to use the given number of tokens. It returns
// an error if a limit is reached, including those of storage and cost. The caller must call
// end once, when the response has ended, with the number of tokens used. A negative number means
// that another server counts the response.
func (q *Quota) Begin(ctx context.Context, c berth.Caller, tokens int) (end func(used int), err error) {
	id := c.Project
	p, err := q.room(ctx, id, 0, func(*bounded) {})
	if err != nil {
		return nil, err
	}
	if err := q.funds(ctx, p, c); err != nil {
		return nil, err
	}
	need := int64(max(tokens, 1))
	drawn, err := q.draw(ctx, p, func() []store.Want { return p.wantsLocked(need) })
	if err != nil {
		return nil, err
	}
	defer drawn()
	q.mu.Lock()
	defer q.mu.Unlock()
	p.fill(time.Now())
	defer func() {
		if err != nil {
			q.settleLocked(p, false) // it has drawn what it does not use
		}
	}()
	if n, limited := bound(p.limits.RequestsPerMinute); limited {
		if wait := p.requests.wait(1); wait > 0 {
			return nil, again(exceeded("requests", id, "requests per min (RPM)", n, p.requests.used(), 1), wait)
		}
	}
	if n, limited := bound(p.limits.TokensPerMinute); limited {
		switch wait := p.tokens.wait(need); {
		case wait == math.MaxInt64:
			return nil, again(&berth.Error{Code: berth.CodeRateLimited, Wire: "rate_limit_exceeded", Type: "tokens",
				Message: fmt.Sprintf(
					"Request too large for project %s on tokens per min (TPM): Limit %d, Requested %d. "+
						"The input or output tokens must be reduced in order to run successfully.", id, n, need)}, wait)
		case wait > 0:
			return nil, again(exceeded("tokens", id, "tokens per min (TPM)", n, p.tokens.used(), need), wait)
		}
	}
	if n, limited := bound(p.limits.Responses); limited && p.responses >= p.mostResponses(n) {
		err := exceeded("requests", id, "responses in progress", n, max(p.responses, n), 1)
		return nil, again(err, time.Second)
	}
	p.requests.use(1)
	p.tokens.use(need)
	p.responses++
	return func(used int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if used < 0 {
			used = 0
			p.requests.use(-1)
		}
		q.endLocked(p, int64(used)-need)
	}, nil
}

// endLocked counts the end of a response that used more tokens than were counted. q.mu is held.
func (q *Quota) endLocked(p *bounded, tokens int64) {
	p.responses--
	p.fill(time.Now())
	p.tokens.use(tokens)
	q.settleLocked(p, false)
}

// Resume counts a response that an earlier process started.
func (q *Quota) Resume(id berth.ProjectID) (end func(used int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.known[id]
	if p == nil {
		p = q.addLocked(id)
	}
	p.responses++
	q.settleLocked(p, false)
	return func(used int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.endLocked(p, int64(used))
	}
}

// fill refills the buckets up to now. A bucket without a limit has the size 0.
func (p *bounded) fill(now time.Time) {
	p.requests.fill(size(p.limits.RequestsPerMinute), now)
	p.tokens.fill(size(p.limits.TokensPerMinute), now)
}

// used returns how much of the bucket is in use.
func (b *bucket) used() int64 { return int64(math.Ceil(b.size - b.content())) }

// A Rate is a limit per minute and its remainder.
type Rate struct {
	Limit     int64
	Remaining int64
	Reset     time.Duration // until Remaining is Limit again
}

// Rates returns the rates of a project from its cached record. A rate without a limit is nil.
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

// Containers returns the number of containers that the project may run concurrently, or -1 for no
// limit. It returns an error if the project's container minutes of the day are used up.
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
		used, err := q.opts.Usages.Usage(ctx, store.UsageQuery{Project: id, Kind: store.UsageContainer, From: day,
			To: tomorrow, Width: 24 * time.Hour})
		if err != nil {
			return 0, err
		}
		var seconds int64
		for _, u := range used {
			seconds += u.Seconds
		}
		if seconds/60 >= n {
			return 0, insufficient(time.Until(tomorrow),
				"The containers of project %s have used all %d minutes of today (UTC). Try again tomorrow.", id, n)
		}
	}
	n, limited := bound(limits.Containers)
	if !limited {
		return -1, nil
	}
	return int(min(n, math.MaxInt32)), nil
}

// Store returns an error if storing more bytes would exceed the project's limit. Negative bytes
// mean that the project stores less afterwards, and are admitted. A caller
// with concurrent writes must hold a lock from this call until the bytes are stored.
func (q *Quota) Store(ctx context.Context, id berth.ProjectID, bytes int64) error {
	_, err := q.room(ctx, id, bytes, func(*bounded) {})
	return err
}

// Full returns an error if the project has reached its storage limit.
func (q *Quota) Full(ctx context.Context, id berth.ProjectID) error { return q.Store(ctx, id, 0) }

// Reserve is like Store for bytes that will be stored soon. They count as stored until the
// caller calls release, which it must do once, after it has stored them. Concurrent reservations cannot exceed
// the limit together.
func (q *Quota) Reserve(ctx context.Context, id berth.ProjectID, bytes int64) (release func(), err error) {
	p, err := q.room(ctx, id, bytes, func(p *bounded) { p.pending += bytes })
	if err != nil {
		return nil, err
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		p.pending -= bytes
		p.released += bytes
	}, nil
}

// Room returns how many bytes the project may still store, or -1 for no limit.
func (q *Quota) Room(ctx context.Context, id berth.ProjectID) (int64, error) {
	p, err := q.project(ctx, id)
	if err != nil {
		return 0, err
	}
	stored, err := q.stored(ctx, id)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n, limited := bound(p.limits.StorageBytes)
	if !limited {
		return -1, nil
	}
	return max(n-stored-p.pending, 0), nil
}

// room returns an error if storing more bytes would exceed the limit. Otherwise it calls admitted with q.mu held.
func (q *Quota) room(ctx context.Context, id berth.ProjectID, bytes int64, admitted func(*bounded)) (*bounded, error) {
	p, err := q.project(ctx, id)
	if err != nil {
		return nil, err
	}
	for {
		q.mu.Lock()
		n, limited := bound(p.limits.StorageBytes)
		if !limited || bytes < 0 {
			admitted(p)
			q.mu.Unlock()
			return p, nil
		}
		released := p.released
		q.mu.Unlock()
		stored, err := q.stored(ctx, id)
		if err != nil {
			return nil, err
		}
		q.mu.Lock()
		since := p.released - released // stored has counted these bytes, or not yet
		stored += p.pending + since
		if bytes > n-stored || stored >= n {
			q.mu.Unlock()
			if since != 0 {
				continue
			}
			if q.reclaim != nil && bytes < n && q.reclaim(ctx, id, max(stored+bytes-n, stored-n+1)) {
				continue
			}
			return nil, insufficient(0,
				"Project %s stores %d bytes and its limit is %d. Delete responses, conversations, files, snapshots or volumes that are no longer needed.",
				id, stored, n)
		}
		admitted(p)
		q.mu.Unlock()
		return p, nil
	}
}

// stored returns the stored bytes of a project, without reserved ones.
func (q *Quota) stored(ctx context.Context, id berth.ProjectID) (sum int64, err error) {
	for _, size := range q.opts.Sizes {
		bytes, err := size(ctx, id)
		if err != nil {
			return 0, fmt.Errorf("sum stored bytes of %s: %w", id, err)
		}
		sum += bytes
	}
	return sum, nil
}

// Write counts a request that changes objects without a model. Such requests have the limit
// RequestsPerMinute too, with a counter of their own.
func (q *Quota) Write(ctx context.Context, id berth.ProjectID) error {
	p, err := q.project(ctx, id)
	if err != nil {
		return err
	}
	drawn, err := q.draw(ctx, p, func() []store.Want {
		return p.wantRate(nil, &p.writes, store.ShareWrites, p.limits.RequestsPerMinute, 1)
	})
	if err != nil {
		return err
	}
	defer drawn()
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

// Snapshots returns an error if the project may not store another snapshot. stored is the
// number of its snapshots.
func (q *Quota) Snapshots(ctx context.Context, id berth.ProjectID, stored int) error {
	p, err := q.project(ctx, id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	n, limited := bound(p.limits.Snapshots)
	q.mu.Unlock()
	if limited && int64(stored) >= n {
		return insufficient(0,
			"Project %s has %d snapshots and its limit is %d. Delete snapshots that are no longer needed.", id,
			stored, n)
	}
	return nil
}

// Limits returns the limits of the project.
func (q *Quota) Limits(ctx context.Context, id berth.ProjectID) (berth.Limits, error) {
	p, err := q.project(ctx, id)
	if err != nil {
		return berth.Limits{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return p.limits, nil
}

// bound returns a limit and whether it is set.
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

// exceeded returns the error for an exceeded rate limit, in OpenAI's words.
func exceeded(kind string, id berth.ProjectID, what string, limit, used, requested int64) *berth.Error {
	return &berth.Error{Code: berth.CodeRateLimited, Wire: "rate_limit_exceeded", Type: kind,
		Message: fmt.Sprintf("Rate limit reached for project %s on %s: Limit %d, Used %d, Requested %d.", id, what,
			limit, used, requested)}
}

// again adds the time of a retry to an error. A wait of math.MaxInt64 means that a retry is useless.
func again(err *berth.Error, wait time.Duration) *berth.Error {
	if wait == math.MaxInt64 {
		err.RetryAfter = -1
		return err
	}
	err.RetryAfter = cmp.Or(wait, time.Second)
	err.Message += fmt.Sprintf(" Please try again in %v.", err.RetryAfter)
	return err
}

// insufficient returns the error for an exhausted quota. A wait of 0 means that a retry is useless.
func insufficient(wait time.Duration, format string, args ...any) *berth.Error {
	return &berth.Error{Code: berth.CodeRateLimited, Wire: "insufficient_quota", Type: "insufficient_quota",
		RetryAfter: cmp.Or(wait, -1),
		Message:    "You exceeded your current quota. " + fmt.Sprintf(format, args...)}
}

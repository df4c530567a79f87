package balance

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A Breaker configures when a failing model of an upstream is skipped, or the whole
// upstream if it cannot be reached. It counts failures that another upstream may not
// have: no connection, a status of 500 and above, a timeout, a broken answer.
type Breaker struct {
	Failures int           // failures in a row that open the circuit; default 5
	Share    float64       // share of the last minute's requests, if at least 20, that does; default 0.5
	Open     time.Duration // time until one request is tried again; default 10 s
}

const (
	window     = time.Minute // for which the share is counted
	fewestSeen = 20          // requests needed to apply the share
)

// maxModels bounds the models of an upstream with a breaker of their own. Patterns
// route names that clients choose.
const maxModels = 256

// circuits holds the breakers of an upstream: one for each model, and one for the
// whole, which counts only whether the upstream can be reached. A failing model does
// not block the others.
type circuits struct {
	whole *breaker
	make  func(model string) *breaker

	mu     sync.Mutex
	models map[string]*breaker
}

func newCircuits(b Breaker, who string, log *slog.Logger) *circuits {
	failed := func(err error) bool { return berth.ErrorCode(err) == berth.CodeUpstream }
	return &circuits{
		whole:  newBreaker(b, who, log, func(err error) bool { return errors.Is(err, model.ErrUnreachable) }),
		make:   func(name string) *breaker { return newBreaker(b, who, log.With("model", name), failed) },
		models: map[string]*breaker{},
	}
}

// of returns the breaker of a model.
func (c *circuits) of(name string) *breaker {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.models[name]
	if b == nil {
		if len(c.models) >= maxModels {
			clear(c.models)
		}
		b = c.make(name)
		c.models[name] = b
	}
	return b
}

// ready returns an error if the model's circuit or the whole is open.
func (c *circuits) ready(name string) error {
	if err := c.whole.ready(); err != nil {
		return err
	}
	return c.of(name).ready()
}

// allow admits a request. The caller must report its outcome; only the first report
// counts.
func (c *circuits) allow(name string) (report func(error), err error) {
	whole, err := c.whole.allow()
	if err != nil {
		return nil, err
	}
	one, err := c.of(name).allow()
	if err != nil {
		whole(errLeft)
		return nil, err
	}
	return func(err error) { whole(err); one(err) }, nil
}

// broke counts a failure of a request that was reported as answered.
func (c *circuits) broke(name string, err error) { c.of(name).broke(err) }

// String returns the most restrictive state of all circuits.
func (c *circuits) String() string {
	worst := c.whole.two.State()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.models {
		worst = max(worst, b.two.State()) // closed, half-open, open
	}
	return worst.String()
}

// A breaker is a circuit breaker.
type breaker struct {
	who  string // the upstream, as the subject of a message
	two  *gobreaker.TwoStepCircuitBreaker[struct{}]
	mu   sync.Mutex
	till time.Time // when an open circuit half-opens
}

func newBreaker(b Breaker, who string, log *slog.Logger, failed func(error) bool) *breaker {
	failures, share, open := uint32(max(0, cmp.Or(b.Failures, 5))), cmp.Or(b.Share, 0.5), cmp.Or(b.Open, 10*time.Second)
	out := &breaker{who: who}
	out.two = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Interval: window, BucketPeriod: window / 6, Timeout: open, MaxRequests: 1,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= failures || c.Requests >= fewestSeen &&
				float64(c.TotalFailures) >= share*float64(c.Requests)
		},
		IsSuccessful: func(err error) bool { return !failed(err) },
		IsExcluded:   func(err error) bool { return errors.Is(err, errLeft) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				out.mu.Lock()
				out.till = time.Now().Add(open)
				out.mu.Unlock()
			}
			log.Warn("upstream circuit changed", "from", from.String(), "to", to.String())
		},
	})
	return out
}

// ready returns an error if the circuit is open.
func (b *breaker) ready() error {
	if b.two.State() == gobreaker.StateOpen {
		return b.skipped()
	}
	return nil
}

// allow admits a request. The caller must report its outcome; only the first report
// counts.
func (b *breaker) allow() (report func(error), err error) {
	done, err := b.two.Allow()
	if err != nil {
		return nil, b.skipped()
	}
	var once sync.Once
	return func(err error) { once.Do(func() { done(err) }) }, nil
}

// broke counts a failure of a request that was reported as answered.
func (b *breaker) broke(err error) {
	if done, refused := b.two.Allow(); refused == nil {
		done(err)
	}
}

// skipped returns the error for a request that is not admitted.
func (b *breaker) skipped() error {
	b.mu.Lock()
	rest := time.Until(b.till)
	b.mu.Unlock()
	rest = max(rest, time.Second)
	err := &berth.Error{Code: berth.CodeUpstream, Err: model.ErrNotSent,
		Message: fmt.Sprintf("%s has failed too often. Berth tries it again in %d s.", b.who,
			int(math.Ceil(rest.Seconds())))}
	return model.WithRetryAfter(err, rest)
}

// errLeft is reported to the breaker when the caller left before an outcome.
var errLeft = errors.New("the caller left")

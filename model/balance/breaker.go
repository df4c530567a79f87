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

// A Breaker says when a model of an upstream that fails is left alone, or all of them
// when the upstream cannot be reached. Its failures are those
// that another upstream would not have: it cannot be reached, answers 500 and the
// like, falls silent, or breaks off.
type Breaker struct {
	Failures int           // in a row after which it is; default 5
	Share    float64       // of the last minute's questions, if they were 20 or more, the same; default 0.5
	Open     time.Duration // until one question is let through to see; default 10 s
}

const (
	window     = time.Minute // in which the share is counted
	fewestSeen = 20          // questions that a share is counted of
)

// maxModels bounds the models of an upstream that have a breaker of their own. Clients
// choose names where a pattern routes them.
const maxModels = 256

// circuits are the breakers of an upstream: one for each model, and one for all of
// them, which counts only whether the upstream can be reached. A model that fails does
// not keep the others from being asked.
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

// ready returns an error if no question about the model is let through.
func (c *circuits) ready(name string) error {
	if err := c.whole.ready(); err != nil {
		return err
	}
	return c.of(name).ready()
}

// allow lets a question through, whose outcome must be reported; only the first report
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

// broke counts the failure of a question that had been reported as answered.
func (c *circuits) broke(name string, err error) { c.of(name).broke(err) }

// String returns the state of the circuit that lets the least through.
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
	who  string // the upstream as the subject of a message
	two  *gobreaker.TwoStepCircuitBreaker[struct{}]
	mu   sync.Mutex
	till time.Time // it opened, and stays so
}

func newBreaker(b Breaker, who string, log *slog.Logger, failed func(error) bool) *breaker {
	failures, share, open := uint32(max(0, cmp.Or(b.Failures, 5))), cmp.Or(b.Share, 0.5), cmp.Or(b.Open, 10*time.Second)
	out := &breaker{who: who}
	out.two = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Interval: window, BucketPeriod: window / 6, Timeout: open, MaxRequests: 1,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= failures || c.Requests >= fewestSeen && float64(c.TotalFailures) >= share*float64(c.Requests)
		},
		IsSuccessful: func(err error) bool { return !failed(err) },
		IsExcluded:   func(err error) bool { return errors.Is(err, errLeft) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				out.mu.Lock()
				out.till = time.Now().Add(open)
				out.mu.Unlock()
			}
			log.Warn("the circuit to an upstream has changed", "from", from.String(), "to", to.String())
		},
	})
	return out
}

// ready returns an error if nothing is let through.
func (b *breaker) ready() error {
	if b.two.State() == gobreaker.StateOpen {
		return b.left()
	}
	return nil
}

// allow lets a question through, whose outcome must be reported; what is reported
// later than the first is not heard.
func (b *breaker) allow() (report func(error), err error) {
	done, err := b.two.Allow()
	if err != nil {
		return nil, b.left()
	}
	var once sync.Once
	return func(err error) { once.Do(func() { done(err) }) }, nil
}

// broke counts the failure of a question that had been reported as answered.
func (b *breaker) broke(err error) {
	if done, refused := b.two.Allow(); refused == nil {
		done(err)
	}
}

// left is the error for a question that is not let through.
func (b *breaker) left() error {
	b.mu.Lock()
	rest := time.Until(b.till)
	b.mu.Unlock()
	rest = max(rest, time.Second)
	err := &berth.Error{Code: berth.CodeUpstream, Err: model.ErrNotAsked,
		Message: fmt.Sprintf("%s has failed too often. It is asked again in %d s.", b.who, int(math.Ceil(rest.Seconds())))}
	return model.WithRetryAfter(err, rest)
}

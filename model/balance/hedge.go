package balance

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A runner is one of two answers that race for the first output.
type runner struct {
	next   func() (model.Delta, error, bool)
	stop   func()
	cancel context.CancelFunc

	// The first output.
	delta model.Delta
	err   error
}

// hedge tries the first target, and the others once it has failed or sent nothing for
// HedgeAfter. The first answer wins. The other is cancelled, and its usage is not
// counted.
func (g *Group) hedge(ctx context.Context, req *model.Request, yield func(model.Delta, error) bool) {
	plan := g.plan(req)
	started := make(chan *runner, 2)
	var racing []*runner
	start := func(plan []Target) {
		ctx, cancel := context.WithCancel(ctx)
		r := &runner{cancel: cancel}
		r.next, r.stop = iter.Pull2(func(yield func(model.Delta, error) bool) {
			if err := g.try(ctx, req, plan, yield); err != nil {
				yield(nil, err)
			}
		})
		racing = append(racing, r)
		go func() {
			r.first()
			started <- r
		}()
	}
	start(plan[:1])
	timer := time.NewTimer(g.opts.HedgeAfter)
	defer timer.Stop()
	var winner *runner
	var failed error
	for over := 0; winner == nil && over < len(racing); {
		select {
		case r := <-started:
			over++
			if r.err == nil {
				winner = r
				break
			}
			failed = better(failed, r.err)
			r.close()
			if len(racing) == 1 && elsewhere(ctx, r.err) {
				start(plan[1:])
			}
		case <-timer.C:
			if len(racing) == 1 {
				start(plan[1:])
			}
		}
	}
	for _, r := range racing {
		if r != winner {
			r.cancel()
		}
	}
	if winner == nil {
		yield(nil, failed)
		return
	}
	defer winner.close()
	if len(racing) == 2 && failed == nil {
		go func() { (<-started).close() }() // the other, when it notices the cancellation
	}
	winner.emit(yield)
}

// first waits for the first output. It recovers a provider's panic, because no caller
// could.
func (r *runner) first() {
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("panic in a provider: %v", p)
		}
	}()
	delta, err, ok := r.next()
	if !ok && err == nil {
		err = berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
	}
	r.delta, r.err = delta, err
}

// emit yields the answer from its first output on.
func (r *runner) emit(yield func(model.Delta, error) bool) {
	for delta, err, ok := r.delta, r.err, true; ok; delta, err, ok = r.next() {
		if !yield(delta, err) {
			return
		}
	}
}

func (r *runner) close() {
	r.cancel()
	r.stop()
}

package balance

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A runner is one of two answers that race for the first word.
type runner struct {
	next  func() (model.Delta, error, bool)
	stop  func()
	leave context.CancelFunc

	// What it said first.
	delta model.Delta
	err   error
}

// hedge asks the first target, and the others as well once it has failed or been
// silent for too long. The one that does not speak first is left: nobody counts
// what it has used.
func (g *Group) hedge(ctx context.Context, req *model.Request, yield func(model.Delta, error) bool) {
	plan := g.plan(req)
	spoken := make(chan *runner, 2)
	var racing []*runner
	start := func(plan []Target) {
		ctx, cancel := context.WithCancel(ctx)
		r := &runner{leave: cancel}
		r.next, r.stop = iter.Pull2(func(yield func(model.Delta, error) bool) {
			if err := g.ask(ctx, req, plan, yield); err != nil {
				yield(nil, err)
			}
		})
		racing = append(racing, r)
		go func() {
			r.first()
			spoken <- r
		}()
	}
	start(plan[:1])
	timer := time.NewTimer(g.opts.HedgeAfter)
	defer timer.Stop()
	var winner *runner
	var failed error
	for over := 0; winner == nil && over < len(racing); {
		select {
		case r := <-spoken:
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
			r.leave()
		}
	}
	if winner == nil {
		yield(nil, failed)
		return
	}
	defer winner.close()
	if len(racing) == 2 && failed == nil {
		go func() { (<-spoken).close() }() // the other, as soon as it notices
	}
	winner.tell(yield)
}

// first waits for the first word. A panic of an adapter is the runner's own, for
// nobody above could catch it.
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

// tell tells what is said from the first word on.
func (r *runner) tell(yield func(model.Delta, error) bool) {
	for delta, err, ok := r.delta, r.err, true; ok; delta, err, ok = r.next() {
		if !yield(delta, err) {
			return
		}
	}
}

func (r *runner) close() {
	r.leave()
	r.stop()
}

package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// loadSources gets the tools of the sources that the context does not list, and applies the
// tool_choice to them.
func (r *run) loadSources(ctx context.Context) error {
	if !r.tools.unloaded() {
		return nil
	}
	for _, b := range r.tools.sources {
		if b.loaded {
			continue
		}
		listed, err := b.Load(ctx, emitter{w: r.writer, call: -1})
		if err != nil {
			return err
		}
		if err := r.tools.addListed(b, listed); err != nil {
			return err
		}
	}
	return r.tools.choose(r.engine.Tools, r.record.Body.ToolChoice)
}

// begun reports whether the response has output besides the lists of its tools.
func (r *run) begun() bool {
	return slices.ContainsFunc(r.writer.Body().Output, func(it berth.Item) bool {
		return !r.engine.Tools.IsListing(it)
	})
}

// addFound adds the tools that searches of the server have found in this response.
func (r *run) addFound() error {
	kinds, output, found := r.engine.Tools, r.writer.Body().Output, false
	for ; r.searched < len(output); r.searched++ {
		tools, err := kinds.Offered(output[r.searched])
		if err != nil {
			return err
		}
		for _, t := range tools {
			found = true
			if err := r.tools.bind(kinds, r.tools.bound, t); err != nil {
				return err
			}
		}
	}
	if !found {
		return nil
	}
	return r.tools.choose(kinds, r.record.Body.ToolChoice)
}

// openApproved opens the calls that the request's input approves of. They become the
// response's first pending calls.
func (r *run) openApproved(ctx context.Context) error {
	approved := r.guard.newlyApproved(r.transcript.Items(), r.transcript.Input)
	if len(approved) == 0 {
		return nil
	}
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		var all []berth.Event
		next := len(body.Output)
		for _, request := range approved {
			function := tool.ApprovalFunction(request)
			if r.tools.hosted(function) == nil {
				continue // its server has it no more; the model reads that the call was not run
			}
			events, call := r.guard.openCall(next, function, request.Arguments,
				berth.CallBerth{ApprovalRequestID: request.ID})
			all = append(all, events...)
			r.pending = append(r.pending, pendingCall{Call: call, index: next})
			next++
		}
		return all
	})
}

// main runs turns until the response has ended, and writes its last event. It reports
// whether the run is over. It returns false if the store failed; the caller then reopens
// the run.
func (r *run) main(ctx context.Context) (over bool) {
	if r.options.prepared {
		return true // it was created with its last event
	}
	ctx, stop := r.guard.within(ctx)
	defer stop()
	if err := r.turns(ctx); err != nil {
		return r.endStopped(ctx, err)
	}
	return true
}

// endStopped writes the last event of a run that failed or was stopped, and reports as main does.
//
//go:noinline
func (r *run) endStopped(ctx context.Context, err error) (over bool) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endGrace)
	defer cancel()
	var bound limitReason
	failed := r.writer.Err()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLeaseLost), lost(err):
		r.log().Warn("lost run to another server", "err", err)
		return true
	case errors.Is(cause, tool.ErrDetached):
		r.engine.release(last, r)
		return true
	case failed != nil:
		err = failed
	case errors.As(cause, &bound):
		err = r.breakOff(last, r.turnWriter.unfinished(), berth.StatusIncomplete, string(bound), nil)
	case cause != nil:
		r.log().Info("stopped run", "cause", cause)
		err = r.breakOff(last, r.turnWriter.unfinished(), berth.StatusCancelled, "", nil)
	default:
		r.log().Warn("response failed", "err", err)
		err = r.breakOff(last, r.turnWriter.unfinished(), berth.StatusFailed, "", err)
	}
	switch {
	case err == nil:
		return true
	case lost(err):
		r.log().Warn("lost run to another server", "err", err)
		return true
	case r.writer.Err() == nil && last.Err() == nil:
		r.log().Error("failed to make last event; the response is resumed when its lease lapses", "err", err)
		return true
	}
	r.log().Error("failed to store events; the response is resumed when the store works again", "err", err)
	return false
}

// turns calls the model and runs its hosted calls, turn after turn, until a turn has no
// hosted call. A panic below fails the response, not the server.
func (r *run) turns(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log().Error("panic in a run", "panic", p, "stack", string(debug.Stack()))
			err = berth.Errorf(berth.CodeInternal, "panic")
		}
	}()
	over, err := r.begin(ctx)
	for first := !r.begun(); !over && err == nil; first = false {
		if over, err = r.proceed(ctx, first); !over && err == nil {
			over, err = r.turn(ctx, first)
		}
	}
	return err
}

// begin prepares the first turn of this run. It reports whether the response is over.
//
//go:noinline
func (r *run) begin(ctx context.Context) (over bool, err error) {
	if r.compactor.triggered() && !r.begun() {
		if err := r.compactor.compact(ctx); err != nil {
			return false, err
		}
	}
	if r.concluded(r.writer.Body().Output) {
		return true, r.conclude(ctx)
	}
	if err := r.loadSources(ctx); err != nil {
		return false, err
	}
	if !r.begun() {
		if err := r.openApproved(ctx); err != nil {
			return false, err
		}
	}
	return false, r.programs.resume()
}

// proceed runs the pending hosted calls and checks what may end the response before the next
// turn. It reports whether the response is over.
//
//go:noinline
func (r *run) proceed(ctx context.Context, first bool) (over bool, err error) {
	if err := r.runCalls(ctx); err != nil {
		return false, err
	}
	if err := r.addFound(); err != nil {
		return false, err
	}
	body := r.writer.Body()
	if r.waitsForClient(body) {
		return true, r.finish(ctx, berth.StatusCompleted, "")
	}
	switch r.guard.verdict(body.Output) {
	case checksPassed:
		return true, r.conclude(ctx)
	case checksFailed:
		return true, r.stop(ctx, berth.ReasonChecksFailed)
	}
	if err := r.checkQuota(ctx); err != nil {
		return false, err
	}
	if bound := r.guard.exhausted(&body, r.usage.TotalTokens); bound != "" {
		return true, r.stop(ctx, bound)
	}
	if err := r.compactor.before(ctx, first); err != nil || !r.compactor.paused {
		return false, err
	}
	return true, r.stop(ctx, berth.ReasonCompaction)
}

// runCalls runs the pending hosted calls, in the model's order, and the programs among them
// until they have ended or wait for the client.
func (r *run) runCalls(ctx context.Context) error {
	for {
		for len(r.pending) > 0 {
			next := r.pending[0]
			if program, ok := next.Call.(tool.Program); ok {
				r.programs.add(program, program.Item().CallID())
			} else if err := r.call(ctx, next); err != nil {
				return err
			}
			r.pending = r.pending[1:]
		}
		if err := r.programs.advance(ctx); err != nil {
			return err
		}
		if len(r.pending) == 0 {
			return nil
		}
	}
}

package engine

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// start runs r in the background until it ends or is stopped.
func (e *Engine) start(r *run) {
	ctx, cancel := context.WithCancelCause(trace.ContextWithSpan(berth.WithProject(e.base, r.record.Project), r.span))
	r.cancel, r.ended, r.outage.hurry = cancel, make(chan struct{}), make(chan chan struct{})
	if r.stopped != nil {
		cancel(r.stopped)
	}
	r.programs.run = r
	if r.leased.Load() == nil { // it was created with a lease just now
		r.leased.Store(new(time.Now()))
	}
	e.live.add(r)
	release := func() {}
	if r.options.hold != nil {
		release = r.options.hold()
	}
	e.wg.Add(1)
	e.renewing.Do(func() { go e.renewLeases() })
	go func() {
		defer e.wg.Done()
		defer close(r.ended)
		defer cancel(nil)
		for !r.main(ctx) && r.reopen(ctx) {
		}
		r.programs.stop()
		e.wg.Go(r.tools.close) // servers may be slow to answer
		r.remember()           // first, because the client may continue the response already
		if body := r.writer.Body(); body.Status.Final() {
			e.Observer.Ended(body.Status, turns(e.Tools, body.Output))
		}
		r.endSpan()
		r.booked(r.usage.TotalTokens)
		r.reservations.release(e, r.record.Project)
		release()
		r.writer.Close()
		e.live.remove(r)
	}()
}

// Close detaches from all runs, which the next start resumes, and waits until their
// goroutines have ended. Commands in containers continue. The error is the cause of ctx's
// end.
func (e *Engine) Close(ctx context.Context) error {
	e.detach(tool.ErrDetached)
	e.Forwarder.Close()
	detached := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(detached)
	}()
	select {
	case <-detached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// remember caches the chain up to this response, for a response that continues it.
func (r *run) remember() {
	body := r.writer.Body()
	r.engine.transcripts.Remember(r.transcript, r.options.unstored, &body, r.record.Container, r.origin)
}

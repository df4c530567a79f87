package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
)

// unstoredLife is how long the servers of a cluster keep a background response that is not stored. Another server
// cannot tell whether the one that ran it lives.
const unstoredLife = time.Hour

// resume starts the run of a response in this process. It does nothing if the response
// runs here already, has ended, or is held by another server. If stopped is not nil, the
// run only ends the response as cancelled for that cause.
func (e *Engine) resume(ctx context.Context, ref store.RunRef, stopped error) error {
	release, err := e.live.claim(ctx, ref.Response)
	if err != nil {
		return err
	}
	defer release()
	if e.live.busy(ref.Response) {
		return nil
	}
	rec, err := e.Responses.GetResponse(ctx, ref.Project, ref.Response)
	if err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	if !rec.Body.Store {
		if age := time.Since(time.Unix(rec.Body.CreatedAt, 0)); rec.Body.Background && !e.Placement.Alone() &&
			age < unstoredLife {
			return errForOther
		}
		// Its client has disconnected, and no other client may read it.
		if err := e.Responses.DeleteResponse(ctx, ref.Project, ref.Response); err != nil {
			return fmt.Errorf("delete response: %w", err)
		}
		return nil
	}
	if stopped == nil {
		if err := e.mayResume(ctx, rec); err != nil {
			return err
		}
	}
	r := &run{engine: e, record: rec, lifetime: lifetime{booked: func(int) {}, stopped: stopped}}
	events, err := r.acquire(ctx)
	if errors.Is(err, store.ErrConflict) {
		return nil // it has ended, or another server holds it
	}
	if err != nil {
		return err
	}
	rec.Body = new(r.writer.Body())
	err = r.bind(ctx)
	if err == nil {
		err = r.rewind(ctx, events)
	}
	if err != nil {
		defer r.writer.Close()
		if r.writer.Err() != nil || ctx.Err() != nil || errors.As(err, new(readError)) {
			e.release(context.WithoutCancel(ctx), r)
			return err
		}
		status, failure := berth.StatusFailed, err
		if stopped != nil {
			status, failure = berth.StatusCancelled, nil
		}
		r.log().Error("failed to resume response", "err", err)
		return r.breakOff(ctx, r.turnWriter.unfinished(), status, "", failure)
	}
	r.log().Info("resumed response", "items", len(rec.Body.Output), "calls", len(r.pending))
	r.booked = e.Quota.Resume(ref.Project)
	r.trace(context.Background()) // the request that created it has ended
	e.start(r)
	return nil
}

// An readError error means that the store could not be read. It does not fail the response.
type readError struct{ error }

func (u readError) Unwrap() error { return u.error }

// bind restores the parts that a stored run needs: its provider, tools and transcript.
func (r *run) bind(ctx context.Context) error {
	e, rec := r.engine, r.record
	var err error
	if err = r.route(e.Models, rec.Body.Model); err != nil {
		return err
	}
	r.compactor = newCompactor(r, e.transcripts.Window(e.Models.Window(rec.Body.Model)))
	chain, err := e.transcripts.Stored(ctx, rec)
	if _, ok := errors.AsType[*berth.Error](err); err != nil && !ok {
		return readError{fmt.Errorf("read chain: %w", err)}
	}
	if err != nil {
		return err
	}
	r.transcript = e.transcripts.Restore(rec, chain)
	bound := r.toolContext(callerOf(rec),
		rec.Request.Include)
	if err := r.outlook.bind(e.Tools, bound, rec.Body, slices.Concat(r.transcript.Items(),
		rec.Body.Output)); err != nil {
		return err
	}
	r.guard = newGuard(rec, r.tools, e)
	if err := r.reserveContainer(ctx); err != nil {
		return err
	}
	if r.origin = transcript.OriginOf(rec.Body); r.origin.Upstream == "" {
		r.origin = chain.Origin
	}
	return nil
}

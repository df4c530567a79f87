package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// A run is the live work on one response.
type run struct {
	engine     *Engine
	record     *store.Response // as admitted or as found; its Body is not updated
	writer     *journal.Writer
	provider   model.Provider
	upstream   string // the provider's name of the model
	tools      toolset
	transcript *transcript.Transcript
	options    options

	window transcript.Window
	origin model.Origin // the provider of the last turn, as far as is known
	used
	compacting

	pending []tool.Call // hosted calls without output
	asides  []aside     // refused calls, in order
	refused int         // turns in a row that had nothing else
	speech  *speech     // of the present turn; nil before the first

	reported
	lifetime
	outage
}

// options are what a caller of Create chose; see Option.
type options struct {
	unstored *transcript.Unstored // of the client's connection, or nil
	prepared bool
	id       berth.ResponseID
	hold     func() (release func()) // nil if there is nothing to hold
}

// used is what a response has used so far.
type used struct {
	said        int64 // bytes of the model's output, see sizeOfDelta
	storedAt    int64 // said when full was last called
	hostedCalls int   // calls of hosted tools, for max_tool_calls
	usage       berth.Usage
	summed      int // output tokens of usage that went into compactions, not into the answer
}

// compacting is what a run knows about the size of its context.
type compacting struct {
	heard       int  // tokens of the context after the last turn, as the upstream counted them
	raised      int  // the threshold of compactions, once they do not help enough
	uncompacted bool // the model failed to summarise
	rescued     bool // a compaction was made because the upstream refused a turn
}

// reported is what the upstream of the last turn says about the whole response.
type reported struct {
	tier       string          // "" if it does not say which it used
	moderation json.RawMessage // nil if there are no scores
}

// lifetime is how a run ends.
type lifetime struct {
	booked  func(tokens int) // reports the end of the run to the quota
	clients *clients         // nil if the run needs none
	cancel  context.CancelCauseFunc
	ended   chan struct{}
	stopped error // the cause with which the run starts as cancelled, or nil
}

// outage is the state of a run whose events cannot be stored.
type outage struct {
	delay    time.Duration      // before the last attempt to reopen the run
	reopened time.Time          // when it last succeeded
	hurry    chan chan struct{} // asks for an attempt now; its channel is closed if that fails
	hurried  []chan struct{}    // of attempts that have not ended
}

func (r *run) id() berth.ResponseID { return r.record.Body.ID }

func (r *run) key() transcript.Key {
	return transcript.Key{Project: r.record.Project, ID: string(r.id())}
}

// log returns a logger with the ids of the response and of the request that created it.
func (r *run) log() *slog.Logger {
	return r.engine.Log.With("response", r.id(), "request_id", r.record.RequestID)
}

// main runs turns until the response has ended, and writes its last event. It reports
// whether the run is over. If not, the store has failed, and the run must be reopened.
func (r *run) main(ctx context.Context) (over bool) {
	if r.options.prepared {
		return true // it was created with its last event
	}
	ctx, stop := r.within(ctx)
	defer stop()
	err := r.turns(ctx)
	if err == nil {
		return true
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endGrace)
	defer cancel()
	var bound spent
	failed := r.writer.Err()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLeaseLost), lost(err):
		r.log().Warn("the run is no longer this server's", "err", err)
		return true
	case errors.Is(cause, tool.ErrDetached):
		r.release(last)
		return true
	case failed != nil:
		err = failed
	case errors.As(cause, &bound):
		err = r.end(last, berth.StatusIncomplete, string(bound), nil)
	case cause != nil:
		r.log().Info("the run was stopped", "cause", cause)
		err = r.end(last, berth.StatusCancelled, "", nil)
	default:
		r.log().Warn("the response failed", "err", err)
		err = r.end(last, berth.StatusFailed, "", err)
	}
	switch {
	case err == nil:
		return true
	case lost(err):
		r.log().Warn("the run is no longer this server's", "err", err)
		return true
	case r.writer.Err() == nil && last.Err() == nil:
		r.log().Error("failed to make the last event; the response is resumed when its lease has lapsed", "err", err)
		return true
	}
	r.log().Error("failed to store events; the response is resumed when the store works again", "err", err)
	return false
}

// lost reports whether an error of the store means that the run is not, or no longer,
// this server's.
func lost(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
}

// release gives up the run's lease, so that another server need not wait for its end.
func (r *run) release(ctx context.Context) {
	if err := r.engine.Runs.ReleaseRun(ctx, r.record.Project, r.id(), r.engine.Owner); err != nil {
		r.log().Error("failed to release a lease", "err", err)
	}
}

// turns asks the model and runs what it calls, until it calls no hosted tool. A
// panic below is a failed response, not the end of the server.
func (r *run) turns(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log().Error("panic in a run", "panic", p, "stack", string(debug.Stack()))
			err = berth.Errorf(berth.CodeInternal, "panic")
		}
	}()
	if r.triggered() && len(r.writer.Body().Output) == 0 {
		if err := r.compact(ctx); err != nil {
			return err
		}
	}
	if r.concluded(r.writer.Body().Output) {
		return r.conclude(ctx)
	}
	if len(r.writer.Body().Output) == 0 {
		if err := r.approved(ctx); err != nil {
			return err
		}
	}
	for first := len(r.writer.Body().Output) == 0; ; first = false {
		for len(r.pending) > 0 {
			if err := r.call(ctx, r.pending[0]); err != nil {
				return err
			}
			r.pending = r.pending[1:]
		}
		if r.waitsForClient(r.writer.Body()) {
			return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
				return []berth.Event{r.final(body, berth.StatusCompleted, "")}
			})
		}
		if over, err := r.checked(ctx); over || err != nil {
			return err
		}
		if err := r.full(ctx); err != nil {
			return err
		}
		body := r.writer.Body()
		if bound := r.exhausted(&body); bound != "" {
			return r.stop(ctx, bound)
		}
		if err := r.compactBefore(ctx, first); err != nil {
			return err
		}
		over, err := r.turn(ctx, first)
		if over || err != nil {
			return err
		}
	}
}

// stop ends a response whose items are finished as incomplete.
func (r *run) stop(ctx context.Context, reason string) error {
	r.log().Info("the response stops", "reason", reason)
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return []berth.Event{r.final(body, berth.StatusIncomplete, reason)}
	})
}

// end writes the events that end the response: what is open is closed as
// incomplete, and why is said.
func (r *run) end(ctx context.Context, status berth.Status, incomplete string, failure error) error {
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		events := abandon(body, r.speech.unfinished())
		body = fold(body, events)
		if failure != nil {
			e := wireError(failure)
			body.Error = &berth.ResponseError{Code: e.Code, Message: e.Message}
			events = append(events, berth.ErrorEvent(e))
		}
		return append(events, r.final(body, status, incomplete))
	})
}

// fold returns the response with events applied that were made for it.
func fold(body berth.Response, events []berth.Event) berth.Response {
	body.Output = slices.Clone(body.Output)
	for i := range events {
		if err := body.Apply(&events[i]); err != nil {
			panic(err)
		}
	}
	return body
}

// final returns the last event of a response in the given state.
func (r *run) final(body berth.Response, status berth.Status, incomplete string) berth.Event {
	now := time.Now().Unix()
	body.Status = status
	body.ServiceTier, body.Moderation = cmp.Or(r.tier, "default"), r.moderation
	types := map[berth.Status]berth.EventType{
		berth.StatusCompleted:  berth.EventCompleted,
		berth.StatusIncomplete: berth.EventIncomplete,
		berth.StatusFailed:     berth.EventFailed,
		berth.StatusCancelled:  berth.EventCancelled,
	}
	if status == berth.StatusCompleted {
		body.CompletedAt = &now
	}
	if status == berth.StatusCompleted || status == berth.StatusIncomplete {
		usage := r.usage
		body.Usage = &usage
	}
	if incomplete != "" {
		body.IncompleteDetails = &berth.IncompleteDetails{Reason: incomplete}
	}
	return berth.Event{Type: types[status], Response: &body}
}

// wireError is what a client learns of a failure.
func wireError(err error) *berth.EventError {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code == berth.CodeInternal {
		return &berth.EventError{Type: "server_error", Code: "server_error",
			Message: "The server had an error while processing your request."}
	}
	out := &berth.EventError{Type: "server_error", Code: "server_error", Message: e.Message}
	switch e.Code {
	case berth.CodeRateLimited:
		out.Type, out.Code = "rate_limit_error", "rate_limit_exceeded"
	case berth.CodeInvalid, berth.CodeTooLarge:
		out.Type, out.Code = "invalid_request_error", "invalid_prompt"
	}
	if e.Wire != "" {
		out.Code = e.Wire
	}
	if e.Param != "" {
		out.Param = &e.Param
	}
	return out
}

// An emitter lets a tool's call write to the response.
type emitter struct{ w *journal.Writer }

func (e emitter) Add(ctx context.Context, item berth.Item) (int, error) {
	var index int
	err := e.w.Update(ctx, func(body berth.Response) []berth.Event {
		index = len(body.Output)
		return []berth.Event{{Type: berth.EventOutputItemAdded, OutputIndex: &index, Item: &item}}
	})
	return index, err
}

func (e emitter) Emit(ctx context.Context, index int, events ...berth.Event) error {
	if len(events) == 0 {
		return nil
	}
	for i := range events {
		events[i].OutputIndex = &index
	}
	return e.w.Append(ctx, events...)
}

func (e emitter) Done(ctx context.Context, index int, item berth.Item) error {
	return e.w.Append(ctx, berth.Event{Type: berth.EventOutputItemDone, OutputIndex: &index, Item: &item})
}

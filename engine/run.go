package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// A run is the live work on one response. One goroutine runs its turns; other goroutines
// use only its lifetime and the channel of its outage.
type run struct {
	engine *Engine
	record *store.Response // as admitted or read; its Body is not updated
	writer *journal.Writer
	outlook
	options   options
	guard     guard
	span      trace.Span // of the response
	compactor compactor
	origin    model.Origin // the provider of the last turn, or zero

	turnWriter   *turnWriter   // of the current turn; nil before the first
	pending      []pendingCall // hosted calls without output
	programs     programs
	refusals     []refusal // in order
	refusedTurns int       // consecutive turns that had only refused calls
	searched     int       // items of the output whose found tools have been added

	used
	reported
	reservations
	lifetime
	outage outage
}

// A pendingCall is a hosted call with the place of its item in the output.
type pendingCall struct {
	tool.Call
	index  int
	caller *berth.ToolCaller // the program that made it, or nil
}

// options are the choices of the caller of Create; see Option.
type options struct {
	unstored  *transcript.Unstored // of the client's connection, or nil
	prepared  bool
	id        berth.ResponseID
	hold      func() (release func()) // nil if there is nothing to hold
	container berth.ContainerID       // if the chain has none; see InContainer
}

// used counts the resources that a response has used.
type used struct {
	written      int64 // bytes of the model's output, see sizeOfDelta
	checkedAt    int64 // value of written at the last check of the quota
	hostedCalls  int   // for max_tool_calls
	usage        berth.Usage
	summaryUsage int // output tokens of usage that went into compactions, not into the answer
}

// reported are the fields of the whole response that the upstream of the last turn sets.
type reported struct {
	tier       string          // empty if unknown
	moderation json.RawMessage // nil without scores
}

// lifetime holds the handles with which a run is stopped and awaited.
type lifetime struct {
	booked  func(tokens int) // reports the end of the run to the quota
	clients *clients         // nil if the run continues without clients
	cancel  context.CancelCauseFunc
	ended   chan struct{}
	stopped error                     // the cause of a run that starts only to be cancelled, or nil
	leased  atomic.Pointer[time.Time] // when the lease was last acquired or renewed
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
// whether the run is over. It returns false if the store failed; the caller then reopens
// the run.
func (r *run) main(ctx context.Context) (over bool) {
	if r.options.prepared {
		return true // it was created with its last event
	}
	ctx, stop := r.guard.within(ctx)
	defer stop()
	if err := r.turns(ctx); err != nil {
		return r.settle(ctx, err)
	}
	return true
}

// settle writes the last event of a run that failed or was stopped, and reports as main does.
//
//go:noinline
func (r *run) settle(ctx context.Context, err error) (over bool) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endGrace)
	defer cancel()
	var bound spent
	failed := r.writer.Err()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLeaseLost), lost(err):
		r.log().Warn("lost run to another server", "err", err)
		return true
	case errors.Is(cause, tool.ErrDetached):
		r.release(last)
		return true
	case failed != nil:
		err = failed
	case errors.As(cause, &bound):
		err = r.end(last, berth.StatusIncomplete, string(bound), nil)
	case cause != nil:
		r.log().Info("stopped run", "cause", cause)
		err = r.end(last, berth.StatusCancelled, "", nil)
	default:
		r.log().Warn("response failed", "err", err)
		err = r.end(last, berth.StatusFailed, "", err)
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

// lost reports whether an error of the store means that this server does not hold the run,
// because another server does or because it was deleted.
func lost(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
}

// release releases the run's lease, so that another server can resume it at once.
func (r *run) release(ctx context.Context) {
	if err := r.engine.Runs.ReleaseRun(ctx, r.record.Project, r.id(), r.engine.Owner); err != nil {
		r.log().Error("failed to release lease", "err", err)
	}
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
		return true, r.complete(ctx)
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
	return false, r.compactor.before(ctx, first)
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

// concluded reports whether the model has finished its answer, so that only the final
// event is missing, after a compaction perhaps.
func (r *run) concluded(output []berth.Item) bool {
	if r.compactor.triggered() {
		return slices.ContainsFunc(output, transcript.IsCompaction)
	}
	if len(r.record.Request.ContextManagement) == 0 {
		return false
	}
	if len(r.pending) > 0 || r.waitsForClient(r.writer.Body()) {
		return false
	}
	for _, it := range slices.Backward(output) {
		if !transcript.IsCompaction(it) {
			return it.Type() == berth.ItemMessage && it.Status() == berth.StatusCompleted
		}
	}
	return false
}

// conclude compacts the context if it is above its threshold, and completes the response.
func (r *run) conclude(ctx context.Context) error {
	if err := r.compactor.after(ctx); err != nil {
		return err
	}
	return r.complete(ctx)
}

// complete ends the response as completed.
func (r *run) complete(ctx context.Context) error {
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return []berth.Event{r.final(body, berth.StatusCompleted, "")}
	})
}

// stop ends a response without open items as incomplete.
func (r *run) stop(ctx context.Context, reason string) error {
	r.log().Info("stopped response at a limit", "reason", reason)
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return []berth.Event{r.final(body, berth.StatusIncomplete, reason)}
	})
}

// end writes the events that end the response. It closes open items as incomplete and
// reports the failure, unless that is nil.
func (r *run) end(ctx context.Context, status berth.Status, incomplete string, failure error) error {
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		events := abandon(body, r.turnWriter.unfinished(), nil)
		body = fold(body, events)
		if failure != nil {
			e := wireError(failure)
			body.Error = &berth.ResponseError{Code: e.Code, Message: e.Message}
			events = append(events, berth.ErrorEvent(e))
		}
		return append(events, r.final(body, status, incomplete))
	})
}

// fold returns the response with events applied.
func fold(body berth.Response, events []berth.Event) berth.Response {
	body.Output = slices.Clone(body.Output)
	for i := range events {
		if err := body.Apply(&events[i]); err != nil {
			panic(err)
		}
	}
	return body
}

// final returns the last event of a response that ends with this status. incomplete is
// the reason of an incomplete response.
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

// wireError returns a failure as the client sees it. It hides internal errors.
func wireError(err error) *berth.EventError {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code == berth.CodeInternal {
		return &berth.EventError{Type: "server_error", Code: "server_error",
			Message: "The server had an error while processing your request."}
	}
	out := &berth.EventError{Type: "server_error", Code: "server_error", Message: e.Message}
	switch e.Code {
	case berth.CodeDependency:
		out.Type, out.Code = "external_connector_error", "http_error"
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

// An emitter writes the output of a tool's call to the response.
type emitter struct {
	w      *journal.Writer
	call   int               // the place of the call's item
	caller *berth.ToolCaller // the program that made the call, or nil
}

// show returns an item of the call with its caller.
func (e emitter) show(item berth.Item) berth.Item {
	if e.caller == nil {
		return item
	}
	return with(item, map[string]any{"caller": e.caller})
}

func (e emitter) Call() int { return e.call }

func (e emitter) Add(ctx context.Context, item berth.Item) (int, error) {
	item = e.show(item)
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
	item = e.show(item)
	return e.w.Append(ctx, berth.Event{Type: berth.EventOutputItemDone, OutputIndex: &index, Item: &item})
}

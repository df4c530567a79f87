// Package engine runs responses: it calls the model, turn after turn, until a turn has no
// more hosted calls.
//
// It knows models and tools only by their interfaces. It appends events to the journal and
// is independent of the journal's readers. A server holds a run under a lease. If the
// server dies, its next start, or another server, resumes the run at the last turn
// boundary (recover.go).
package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// renewalsAtOnce is how many leases are renewed at the same time.
const renewalsAtOnce = 64

// defaultLease is the default of Limits.Lease.
const defaultLease = 30 * time.Second

// endGrace bounds the time for a run's last events after its context has ended.
const endGrace = 10 * time.Second

// The causes that end a run before its answer.
var (
	errCancelled    = errors.New("the response was cancelled")
	errDisconnected = errors.New("the client disconnected")
	errLeaseLost    = leaseLost{}
)

// leaseLost is the error of a run that another server may resume. It is a tool.ErrDetached, so that
// calls go on for that server.
type leaseLost struct{}

func (leaseLost) Error() string        { return "the lease was lost" }
func (leaseLost) Is(target error) bool { return target == tool.ErrDetached }

// A Router finds the provider of a model; *model.Router implements it.
type Router interface {
	// Route returns the provider and its own name for the model, or a
	// CodeNotFound error.
	Route(name string) (model.Provider, string, error)
	// Window returns the size of the model's context with its answer, in tokens, or 0 if
	// unknown.
	Window(name string) int
}

// Containers provides the containers in which calls of responses run.
type Containers interface {
	// Provide returns the container for the environment of a tool, with its files. That is
	// the container that a reference names. For container_auto it is last, the last
	// container of the chain, if that still runs, and otherwise a new container. Errors for
	// the client are *berth.Error. A new container need not exist before its first use, and
	// is dropped if it is not used. Release must follow for each call that succeeds.
	Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment, last berth.ContainerID) (berth.ContainerID, error)
	// Reserve is Provide for a new container that was provided before a crash, under its
	// id. It does nothing if the container exists. Release must follow.
	Reserve(ctx context.Context, caller berth.Caller, id berth.ContainerID) error
	// Begin creates a container that does not exist yet, in advance of its first use. It
	// does not wait for its start.
	Begin(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
	// Release ends the need of a response for a container. It does not block.
	Release(p berth.ProjectID, id berth.ContainerID)
	// Template returns the digest of the container's template.
	Template(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (string, error)
	// Files returns the current files in the working directory of a container, up to a
	// limit.
	Files(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*berth.ContainerFile, error)
}

// Files opens uploaded files for messages that refer to them by id.
type Files = transcript.Files

// A Fetcher reads files for messages that refer to them by URL.
type Fetcher = transcript.Fetcher

// MaxInlineFile is the maximum size of a file in a message to the model, in bytes.
const MaxInlineFile = transcript.MaxInlineFile

// Options are an Engine's parts. Those without a default are required.
type Options struct {
	Responses  store.Responses
	Runs       store.Runs
	Objects    store.Objects
	Usages     store.Usages
	Journal    *journal.Journal // of the same store
	Models     Router
	Containers Containers
	Tools      *tool.Registry
	Files      Files
	Fetcher    Fetcher // of file_url; nil refuses file_url
	Owner      string  // this server's name on leases, which must survive a restart
	Others     Others  // nil if no other server uses the store
	Quota      Quota   // default no limit
	Retry      Retry
	Limits     Limits
	Room       func() error // returns an error for the client while no response may be stored; default nil: no limit
	Observer   Observer     // default nil
	Tracer     trace.Tracer // of responses' spans; nil: none
	Log        *slog.Logger

	// Key seals encrypted_content, which only a server with the same key can decrypt. The
	// default is a random key for the life of the Engine.
	Key [32]byte
}

// Limits bound the resources of responses. All have defaults.
type Limits struct {
	Budget berth.Budget // of a response; a request can lower it
	Output int64        // bytes of model output after which a response ends as incomplete; default 16 MiB
	Cache  int64        // bytes of cached chains and conversations; default 64 MiB
	// Return is how long a run waits after its client disconnected, if that client named
	// the response and may repeat the request; default 10 s.
	Return time.Duration
	Lease  time.Duration // after which another server may resume a run that was not renewed; default 30 s
}

// An Engine answers responses. It is safe for concurrent use.
type Engine struct {
	Options
	transcripts *transcript.Service
	live        *registry

	base   context.Context // the parent of all runs; ends with tool.ErrDetached
	detach context.CancelCauseFunc

	renewing sync.Once // starts the renewal of leases
	sweeping sync.Once // starts the recovery in the background
	wg       sync.WaitGroup
}

// New returns an engine. The caller should then call Recover.
func New(opts Options) *Engine {
	opts.Limits.Output = cmp.Or(opts.Limits.Output, defaultOutput)
	opts.Limits.Return = cmp.Or(opts.Limits.Return, defaultReturn)
	opts.Limits.Lease = cmp.Or(opts.Limits.Lease, defaultLease)
	if opts.Quota == nil {
		opts.Quota = noQuota{}
	}
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	if opts.Room == nil {
		opts.Room = func() error { return nil }
	}
	e := &Engine{Options: opts, live: newRegistry()}
	e.transcripts = transcript.New(transcript.Options{Responses: opts.Responses, Objects: opts.Objects, Files: opts.Files,
		Fetcher: opts.Fetcher, Tools: opts.Tools, Cache: opts.Limits.Cache, Key: opts.Key})
	e.base, e.detach = context.WithCancelCause(context.Background())
	opts.Journal.AtEnd(addToConversation)
	return e
}

// Create checks a request, stores its response and starts its run. It returns the response
// as created; its events follow in the journal.
//
// The end of ctx cancels a foreground response. A background response outlives ctx. A
// response that is not to be stored is deleted when its run and ctx have both ended.
//
// If the caller names the response and it exists, Create returns it as it was created. Its
// run then ends with the last of its callers (client.go).
func (e *Engine) Create(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest, options ...Option) (*berth.Response, error) {
	if caller.Response == "" {
		return e.create(ctx, caller, req, options)
	}
	options = append([]Option{As(caller.Response)}, options...)
	created, err := e.again(ctx, caller)
	if errors.Is(err, store.ErrNotFound) {
		created, err = e.create(ctx, caller, req, options)
	}
	switch {
	case errors.Is(err, store.ErrExists): // a concurrent request has created it
		created, err = e.again(ctx, caller)
	case errors.Is(err, transcript.ErrLocked): // perhaps by a concurrent request for the same response
		if named, missing := e.again(ctx, caller); missing == nil {
			return named, nil
		}
	}
	return created, err
}

func (e *Engine) create(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest, options []Option) (_ *berth.Response, err error) {
	if req.Stored() {
		if err := e.Room(); err != nil {
			return nil, err
		}
	}
	booked, err := e.book(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	defer func() {
		if _, forwarded := errors.AsType[*store.ElsewhereError](err); forwarded {
			booked(-1)
		} else if err != nil {
			booked(0)
		}
	}()
	a := &admission{engine: e, caller: caller, req: req, run: &run{engine: e}}
	defer func() {
		if err != nil {
			a.run.releaseContainers()
		}
	}()
	r, err := a.prepareRun(ctx, options)
	if err != nil {
		return nil, err
	}
	r.booked = booked
	r.record.Key, r.record.RequestID = caller.Key, caller.RequestID
	body := r.record.Body
	created := *body
	first := []berth.Event{{Type: berth.EventCreated, Response: &created}}
	if req.Background {
		created.Status = berth.StatusQueued
		first = append(first, berth.Event{Type: berth.EventQueued, Response: &created})
	}
	first = append(first, berth.Event{Type: berth.EventInProgress, Response: body})
	if r.options.prepared {
		first = append(first, r.final(*body, berth.StatusCompleted, ""))
	}
	release, err := e.live.claim(ctx, r.id()) // so that no sweep resumes it before it starts
	if err != nil {
		return nil, err
	}
	defer release()
	r.writer, err = e.Journal.Create(ctx, r.record, e.lease(), first, r.transcript.Chain.Hold(r.record)...)
	if err != nil {
		return nil, e.createError(ctx, r, err)
	}
	r.trace(ctx)
	if !req.Stored() {
		e.live.await(r.id(), 1)
		r.options.unstored.Expect(r.key())
	}
	if !req.Background {
		r.clients = &clients{}
	}
	if !req.Background && caller.Response != "" {
		r.clients.patience = e.Limits.Return
	}
	e.start(r)
	r.join(ctx)
	return &created, nil
}

// Running returns the number of responses that this process works on.
func (e *Engine) Running() int { return e.live.count() }

// Cancel cancels the run of a response and returns the ended response. It returns a
// response that has ended already unchanged. If the end cannot be stored, the error is
// berth.CodeUnavailable, and the run ends as cancelled later.
func (e *Engine) Cancel(ctx context.Context, caller berth.Caller, id berth.ResponseID) (*berth.Response, error) {
	rec, err := e.stored(ctx, caller.Project, id)
	if err != nil {
		return nil, err
	}
	if err := e.stop(ctx, rec, errCancelled); err != nil {
		return nil, err
	}
	rec, err = e.stored(ctx, caller.Project, rec.Body.ID)
	if err != nil {
		return nil, err
	}
	if !rec.Body.Status.Final() {
		return nil, notCancelled(id, nil)
	}
	return rec.Body, nil
}

// Delete cancels the run of a response, if it still runs, and deletes the response.
func (e *Engine) Delete(ctx context.Context, caller berth.Caller, id berth.ResponseID) error {
	rec, err := e.stored(ctx, caller.Project, id)
	if err != nil {
		return err
	}
	err = e.stop(ctx, rec, errCancelled)
	if _, elsewhere := errors.AsType[*store.ElsewhereError](err); elsewhere || ctx.Err() != nil {
		return err
	}
	if err != nil {
		e.Log.Warn("failed to cancel response before its deletion", "response", id, "err", err)
	}
	defer e.transcripts.Clear() // a later response must not find its items in the cache
	if err := e.Responses.DeleteResponse(ctx, caller.Project, id); errors.Is(err, store.ErrNotFound) {
		return responseNotFound(id)
	} else if err != nil {
		return err
	}
	return nil
}

// stored returns a response that the project may see.
func (e *Engine) stored(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*store.Response, error) {
	rec, err := e.Responses.GetResponse(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) || (err == nil && !rec.Body.Store) {
		return nil, responseNotFound(id)
	}
	return rec, err
}

func responseNotFound(id berth.ResponseID) error {
	return berth.Errorf(berth.CodeNotFound, "Response with id '%s' not found.", id)
}

// Close detaches from all runs, which the next start resumes, and waits until their
// goroutines have ended. Commands in containers continue. The error is the cause of ctx's
// end.
func (e *Engine) Close(ctx context.Context) error {
	e.detach(tool.ErrDetached)
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

// start runs r in the background until it ends or is stopped.
func (e *Engine) start(r *run) {
	ctx, cancel := context.WithCancelCause(trace.ContextWithSpan(e.base, r.span))
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
		r.report()
		r.endSpan()
		r.booked(r.usage.TotalTokens)
		r.releaseContainers()
		release()
		r.writer.Close()
		e.live.remove(r)
	}()
}

// stop ends the run of a response and waits for its last event. If no server holds the
// run, stop resumes it to end it.
func (e *Engine) stop(ctx context.Context, rec *store.Response, cause error) error {
	id := rec.Body.ID
	r := e.live.get(id)
	if r == nil && rec.Body.Status.Final() {
		return nil
	}
	if r == nil {
		if err := e.resume(ctx, store.RunRef{Project: rec.Project, Response: id}, cause); err != nil {
			return notCancelled(id, err)
		}
		if r = e.live.get(id); r == nil {
			return e.heldElsewhere(ctx, rec.Project, id)
		}
	}
	r.cancel(cause)
	failed := make(chan struct{})
	for hurry := r.outage.hurry; ; hurry = nil {
		select {
		case <-r.ended:
			return nil
		case hurry <- failed:
		case <-failed:
			return notCancelled(id, nil)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func notCancelled(id berth.ResponseID, err error) error {
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, RetryAfter: time.Second,
		Message: "Response '" + string(id) + "' cannot be cancelled at the moment, because the server cannot store its end. Try again later."}
}

// purge deletes a response that was not to be stored, once its run has ended. If that
// fails, a sweep deletes it later (recovery.go).
func (e *Engine) purge(r *run) {
	<-r.ended
	defer e.live.await(r.id(), -1)
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	err := e.Responses.DeleteResponse(ctx, r.record.Project, r.id())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		r.log().Error("failed to delete response with store false", "err", err)
	}
}

func (e *Engine) lease() store.Lease {
	return store.Lease{Owner: e.Owner, Until: time.Now().Add(e.Limits.Lease)}
}

// renewLeases renews the leases of all runs until the engine closes. A run that has lost
// its lease to another server stops without further events.
func (e *Engine) renewLeases() {
	tick := time.NewTicker(e.Limits.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-e.base.Done():
			return
		case <-tick.C:
		}
		// Renewals at the same time share a commit. One after the other, those of a thousand
		// runs would take longer than a lease of a database that is not on this machine.
		var all sync.WaitGroup
		slots := make(chan struct{}, renewalsAtOnce)
		for _, r := range e.live.all() {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				err := r.renew(e.base)
				if err != nil && lost(err) {
					r.cancel(errLeaseLost)
				} else if err != nil && e.base.Err() == nil {
					r.log().Error("failed to renew lease", "err", err)
				}
			})
		}
		all.Wait()
	}
}

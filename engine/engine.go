// Package engine answers a response: turn after turn until nothing is asked.
//
// It knows models and tools only by their seams, appends to the journal and
// never learns who reads it. A run is held under a lease; if its server dies,
// the next start resumes it at the last turn boundary (recover.go).
package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// defaultLease is how long a run stays its server's own without being renewed.
const defaultLease = 30 * time.Second

// endGrace bounds the writing of a run's last events after its context ended.
const endGrace = 10 * time.Second

// The causes for which a run ends before its answer.
var (
	errCancelled = errors.New("the response was cancelled")
	errLeft      = errors.New("the client left")
	errLeaseLost = errors.New("the lease was lost")
)

// A Router finds the provider of a model; *model.Router is one.
type Router interface {
	// Route returns the provider and its own name for the model, or a
	// CodeNotFound error.
	Route(name string) (model.Provider, string, error)
	// Window returns how many tokens the model's context holds with its answer; 0
	// is unknown.
	Window(name string) int
}

// Containers provides the containers that calls of responses run in.
type Containers interface {
	// Provide returns the container for the environment of a tool, with its files put
	// in: the one it refers to, or for container_auto the chain's last one if that
	// still runs, else a new one. Errors for the client are *berth.Error.
	Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment, last berth.ContainerID) (berth.ContainerID, error)
	// Template returns the digest of the template that the container lies above.
	Template(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (string, error)
	// Files returns the files in the working directory of a container, as they are
	// now, up to a bound.
	Files(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*berth.ContainerFile, error)
}

// Files opens uploaded files, for messages that name them.
type Files = transcript.Files

// A Fetcher reads the files that the file_url of a message names.
type Fetcher = transcript.Fetcher

// MaxInlineFile is the greatest size of a file that a message carries to the model, in
// bytes.
const MaxInlineFile = transcript.MaxInlineFile

// Options are an Engine's parts. Those without a default are needed.
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
	Fetcher    Fetcher // of file_url; nil refuses it
	Owner      string  // this server's name on leases; the same again after a restart
	Quota      Quota   // default none
	Retry      Retry
	Limits     Limits
	Room       func() error // returns an error for the client while no response may be stored; default none
	Observer   Observer     // default none
	Log        *slog.Logger

	// Key seals encrypted_content, which only a server with the same key can open.
	// The default is a random one, for one life of a server.
	Key [32]byte
}

// Limits bound what responses take. All have defaults.
type Limits struct {
	Budget berth.Budget  // of a response, which can ask for less
	Output int64         // bytes of a response's model output, after which it ends as incomplete; default 16 MiB
	Cache  int64         // bytes of chains and conversations that are cached; default 64 MiB
	Return time.Duration // in which a client that was lost may repeat the request for the response that it named; default 10 s
	Lease  time.Duration // how long a run stays its server's own without being renewed; default 30 s
}

// An Engine answers responses. It is safe for concurrent use.
type Engine struct {
	Options
	transcripts *transcript.Service

	base   context.Context // the parent of all runs; ends with tool.ErrDetached
	detach context.CancelCauseFunc
	renew  sync.Once

	sweeping sync.Once

	mu      sync.Mutex
	runs    map[berth.ResponseID]*run
	claims  map[berth.ResponseID]chan struct{} // of responses that are being resumed; closed at the end
	awaited map[berth.ResponseID]int           // responses that are not stored and have clients
	wg      sync.WaitGroup                     // of runs and of what resumes them
}

// New returns an engine. Recover should follow.
func New(opts Options) *Engine {
	opts.Limits.Output = cmp.Or(opts.Limits.Output, defaultOutput)
	opts.Limits.Return = cmp.Or(opts.Limits.Return, returnTime)
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
	e := &Engine{Options: opts, runs: map[berth.ResponseID]*run{}, claims: map[berth.ResponseID]chan struct{}{},
		awaited: map[berth.ResponseID]int{}}
	e.transcripts = transcript.New(transcript.Options{Responses: opts.Responses, Objects: opts.Objects, Files: opts.Files,
		Fetcher: opts.Fetcher, Tools: opts.Tools, Cache: opts.Limits.Cache, Key: opts.Key})
	e.base, e.detach = context.WithCancelCause(context.Background())
	opts.Journal.AtEnd(leaveToConversation)
	return e
}

// Create checks a request, saves its response and starts to answer it. It
// returns the response as created; the journal tells the rest.
//
// The run of a foreground request ends when ctx does, with a cancelled response.
// A background request outlives ctx. A response that is not to be stored is
// purged when its run and ctx have both ended.
//
// A caller who names the response gets the one of that name, as it was created,
// if there is one; its run then ends with the last of its callers (client.go).
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
	case errors.Is(err, store.ErrExists): // now: the other request was quicker
		created, err = e.again(ctx, caller)
	case errors.Is(err, transcript.ErrLocked): // perhaps by the other request
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
	booked, err := e.book(ctx, caller.Project, req)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			booked(0)
		}
	}()
	r, err := e.admit(ctx, caller, req, options)
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
	release, err := e.claim(ctx, r.id()) // no sweep may take it between its creation and its start
	if err != nil {
		return nil, err
	}
	defer release()
	r.writer, err = e.Journal.Create(ctx, r.record, e.lease(), first, r.transcript.Chain.Hold(r.record)...)
	if err != nil {
		return nil, e.refused(ctx, r, err)
	}
	if !req.Stored() {
		e.await(r.id(), 1)
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

// Cancel ends the run of a response and returns the response as it then is. A
// response that has ended already is returned unchanged. If the end cannot be stored
// the error is berth.CodeUnavailable, and the run ends as cancelled later.
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

// Delete ends the run of a response, if it still runs, and removes its content.
func (e *Engine) Delete(ctx context.Context, caller berth.Caller, id berth.ResponseID) error {
	rec, err := e.stored(ctx, caller.Project, id)
	if err != nil {
		return err
	}
	if err := e.stop(ctx, rec, errCancelled); ctx.Err() != nil {
		return err
	} else if err != nil {
		e.Log.Warn("failed to cancel a response before its deletion", "response", id, "err", err)
	}
	defer e.transcripts.Clear() // a response that continues it must not find its items
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

// Close leaves all runs to the next start and waits until they have been left.
// Commands in containers go on.
func (e *Engine) Close(ctx context.Context) error {
	e.detach(tool.ErrDetached)
	left := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(left)
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start runs r in the background until it ends or is stopped.
func (e *Engine) start(r *run) {
	ctx, cancel := context.WithCancelCause(e.base)
	r.cancel, r.ended, r.hurry = cancel, make(chan struct{}), make(chan chan struct{})
	if r.stopped != nil {
		cancel(r.stopped)
	}
	e.mu.Lock()
	e.runs[r.id()] = r
	e.mu.Unlock()
	release := func() {}
	if r.options.hold != nil {
		release = r.options.hold()
	}
	e.wg.Add(1)
	e.renew.Do(func() { go e.renewLeases() })
	go func() {
		defer e.wg.Done()
		defer close(r.ended)
		defer cancel(nil)
		for !r.main(ctx) && e.reopen(ctx, r) {
		}
		r.keep() // first: the client may go on already
		r.report()
		r.booked(r.usage.TotalTokens)
		release()
		r.writer.Close()
		e.mu.Lock()
		delete(e.runs, r.id())
		e.mu.Unlock()
	}()
}

// stop ends the run of a response and waits for its last event. A run that no server
// holds is resumed for that.
func (e *Engine) stop(ctx context.Context, rec *store.Response, cause error) error {
	id := rec.Body.ID
	r := e.running(id)
	if r == nil && rec.Body.Status.Final() {
		return nil
	}
	if r == nil {
		if err := e.resume(ctx, store.RunRef{Project: rec.Project, Response: id}, cause); err != nil {
			return notCancelled(id, err)
		}
		if r = e.running(id); r == nil {
			return nil // it has ended meanwhile, or is another server's
		}
	}
	r.cancel(cause)
	failed := make(chan struct{})
	for hurry := r.hurry; ; hurry = nil {
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

// running returns the run of a response in this process, or nil.
func (e *Engine) running(id berth.ResponseID) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

func notCancelled(id berth.ResponseID, err error) error {
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, RetryAfter: time.Second,
		Message: "Response '" + string(id) + "' cannot be cancelled at the moment, because the server cannot store its end. Try again later."}
}

// await counts a response that is not to be stored and has clients, by 1, or has none
// any more, by -1.
func (e *Engine) await(id berth.ResponseID, change int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.awaited[id] += change; e.awaited[id] == 0 {
		delete(e.awaited, id)
	}
}

// purge removes a response that was not to be stored, once its run has ended. What
// cannot be removed now is removed by a sweep (takeover.go).
func (e *Engine) purge(r *run) {
	<-r.ended
	defer e.await(r.id(), -1)
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	err := e.Responses.DeleteResponse(ctx, r.record.Project, r.id())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		r.log().Error("a response that was not to be stored could not be removed", "err", err)
	}
}

func (e *Engine) lease() store.Lease {
	return store.Lease{Owner: e.Owner, Until: time.Now().Add(e.Limits.Lease)}
}

// renewLeases keeps the leases of all runs. A run whose lease is lost is
// somebody else's: it stops without another event.
func (e *Engine) renewLeases() {
	tick := time.NewTicker(e.Limits.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-e.base.Done():
			return
		case <-tick.C:
		}
		e.mu.Lock()
		runs := make([]*run, 0, len(e.runs))
		for _, r := range e.runs {
			runs = append(runs, r)
		}
		e.mu.Unlock()
		for _, r := range runs {
			err := e.Runs.AcquireRun(e.base, r.record.Project, r.id(), e.lease(), time.Now())
			if err != nil && lost(err) {
				r.cancel(errLeaseLost)
			} else if err != nil && e.base.Err() == nil {
				r.log().Error("a lease was not renewed", "err", err)
			}
		}
	}
}

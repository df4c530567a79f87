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
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// leaseTime is how long a run stays its server's own without being renewed.
const leaseTime = 30 * time.Second

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

// Containers gives responses the containers that their shells run in.
type Containers interface {
	// Provide returns the container for a shell environment, with its files put
	// in: the one it refers to, or for container_auto the chain's last one if that
	// still runs, else a new one. Errors for the client are *berth.Error.
	Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment, last berth.ContainerID) (berth.ContainerID, error)
	// Shell runs shell calls of the caller's response in the container. It does not
	// block; a container that is gone is reported by the call.
	Shell(caller berth.Caller, id berth.ContainerID) tool.Execer
	// Template returns the digest of the template that the container lies above.
	Template(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (string, error)
	// Files returns the files in the working directory of a container, as they are
	// now, up to a bound.
	Files(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*berth.ContainerFile, error)
}

// Files opens uploaded files, for messages that name them.
type Files interface {
	Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error)
}

// Options are an Engine's parts. Those without a default are needed.
type Options struct {
	Responses  store.Responses
	Runs       store.Runs
	Objects    store.Objects
	Journal    *journal.Journal // of the same store
	Models     Router
	Containers Containers
	Files      Files
	Owner      string // this server's name on leases; the same again after a restart
	Usages     store.Usages
	Quota      Quota // default none
	Retry      Retry
	Budget     berth.Budget // what a response may take at most; it can ask for less
	Shell      tool.ShellLimits
	Return     time.Duration // in which a client that was lost may ask again for the response that it named; default 10 s
	Observer   Observer      // default none
	Log        *slog.Logger

	// Key seals encrypted_content, which only a server with the same key can open.
	// The default is a random one, for one life of a server.
	Key [32]byte
}

// An Engine answers responses. It is safe for concurrent use.
type Engine struct {
	Options

	base   context.Context // the parent of all runs; ends with tool.ErrDetached
	detach context.CancelCauseFunc
	renew  sync.Once
	past   *history
	seals  sealer
	sizes  sizes

	mu   sync.Mutex
	runs map[berth.ResponseID]*run
	wg   sync.WaitGroup // of runs
}

// New returns an engine. Recover should follow.
func New(opts Options) *Engine {
	if opts.Quota == nil {
		opts.Quota = noQuota{}
	}
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	e := &Engine{Options: opts, runs: map[berth.ResponseID]*run{}, past: newHistory(), seals: newSealer(opts.Key)}
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
	case errors.Is(err, errLocked): // perhaps by the other request
		if named, missing := e.again(ctx, caller); missing == nil {
			return named, nil
		}
	}
	return created, err
}

func (e *Engine) create(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest, options []Option) (_ *berth.Response, err error) {
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
	if r.prepared {
		first = append(first, r.final(*body, berth.StatusCompleted, ""))
	}
	r.writer, err = e.Journal.Create(ctx, r.record, e.lease(), first, r.chain.hold(r.record)...)
	if err != nil {
		return nil, e.refused(ctx, r, err)
	}
	if !req.Stored() {
		r.memory.expect(r.key())
	}
	if !req.Background {
		r.clients = &clients{}
	}
	if !req.Background && caller.Response != "" {
		r.clients.patience = cmp.Or(e.Return, returnTime)
	}
	e.start(r)
	r.join(ctx)
	return &created, nil
}

// Cancel ends the run of a response and returns the response as it then is. A
// response that has ended already is returned unchanged.
func (e *Engine) Cancel(ctx context.Context, caller berth.Caller, id berth.ResponseID) (*berth.Response, error) {
	rec, err := e.stored(ctx, caller.Project, id)
	if err != nil {
		return nil, err
	}
	if err := e.stop(ctx, id, errCancelled); err != nil {
		return nil, err
	}
	rec, err = e.stored(ctx, caller.Project, rec.Body.ID)
	if err != nil {
		return nil, err
	}
	return rec.Body, nil
}

// Delete ends the run of a response, if it still runs, and removes its content.
func (e *Engine) Delete(ctx context.Context, caller berth.Caller, id berth.ResponseID) error {
	if _, err := e.stored(ctx, caller.Project, id); err != nil {
		return err
	}
	if err := e.stop(ctx, id, errCancelled); err != nil {
		return err
	}
	defer e.past.clear() // what continues it must not find its items
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
	r.cancel, r.ended = cancel, make(chan struct{})
	e.mu.Lock()
	e.runs[r.id()] = r
	e.mu.Unlock()
	e.wg.Add(1)
	e.renew.Do(func() { go e.renewLeases() })
	go func() {
		defer e.wg.Done()
		defer close(r.ended)
		defer cancel(nil)
		r.main(ctx)
		e.remember(r) // first: the client may go on already
		r.report()
		r.booked(r.usage.TotalTokens)
		r.writer.Close()
		e.mu.Lock()
		delete(e.runs, r.id())
		e.mu.Unlock()
	}()
}

// stop ends a run of this server and waits for its last event. A response that
// does not run here is left alone.
func (e *Engine) stop(ctx context.Context, id berth.ResponseID, cause error) error {
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel(cause)
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// purge removes a response that was not to be stored, once its run has ended.
func (e *Engine) purge(r *run) {
	<-r.ended
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	err := e.Responses.DeleteResponse(ctx, r.record.Project, r.id())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		r.log().Error("a response that was not to be stored could not be removed", "err", err)
	}
}

func (e *Engine) lease() store.Lease {
	return store.Lease{Owner: e.Owner, Until: time.Now().Add(leaseTime)}
}

// renewLeases keeps the leases of all runs. A run whose lease is lost is
// somebody else's: it stops without another event.
func (e *Engine) renewLeases() {
	tick := time.NewTicker(leaseTime / 3)
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
			if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
				r.cancel(errLeaseLost)
			} else if err != nil && e.base.Err() == nil {
				r.log().Error("a lease was not renewed", "err", err)
			}
		}
	}
}

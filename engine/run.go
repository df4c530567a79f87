package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// A run is the live work on one response. One goroutine runs its turns; other goroutines
// use only its lifetime and the channel of its outage.
type run struct {
	engine *Engine
	record *store.Response // as admitted or read; its Body is not updated
	outlook
	ending
	options   options
	guard     guard
	span      trace.Span // of the response
	compactor compactor
	origin    model.Origin // the provider of the last turn, or zero

	turnWriter   *turnWriter   // of the current turn; nil before the first
	pending      []pendingCall // hosted calls without output
	programs     programs
	refusals     refusals
	refusedTurns int // consecutive turns that had only refused calls
	searched     int // items of the output whose found tools have been added

	resourceUse
	reservations reservations
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

// resourceUse counts the resources that a response has used.
type resourceUse struct {
	written      int64 // bytes of the model's output, see sizeOfDelta
	checkedAt    int64 // value of written at the last check of the quota
	hostedCalls  int   // for max_tool_calls
	summaryUsage int   // output tokens of usage that went into compactions, not into the answer
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

// clients counts the connected clients of a foreground run, which ends with the last. It
// is safe for concurrent use.
type clients struct {
	run      *run
	patience time.Duration // how long the run waits for another client after the last

	mu    sync.Mutex
	here  int
	joins int // so far
}

const (
	// firstReopen and lastReopen bound the pause between two attempts to reopen a run
	// whose events cannot be stored.
	firstReopen = 100 * time.Millisecond
	lastReopen  = 10 * time.Second
)

// An outage is the state of a run whose events cannot be stored.
type outage struct {
	delay    time.Duration      // before the last attempt to reopen the run
	reopened time.Time          // when an attempt last succeeded
	hurry    chan chan struct{} // requests an attempt now, which closes the sent channel if it fails
	hurried  []chan struct{}    // of attempts that have not ended
}

// wait returns when to try to reopen the run: after a delay that doubles with each
// attempt, on a request, or when base ends.
func (o *outage) wait(base context.Context) {
	for _, failed := range o.hurried {
		close(failed)
	}
	o.hurried = nil
	o.delay = min(max(2*o.delay, firstReopen), lastReopen)
	t := time.NewTimer(jittered(o.delay))
	defer t.Stop()
	select {
	case <-t.C:
	case failed := <-o.hurry:
		o.hurried = append(o.hurried, failed)
	case <-base.Done():
	}
}

// reservations are the containers that a run was given. One that nothing has used need not
// exist yet.
type reservations struct {
	provided []berth.ContainerID // to be released
	creating bool                // the container is being created, or was
	creation sync.WaitGroup      // of the goroutine that creates it
}

// refusals are the refused calls of a run, in order.
type refusals []refusal

// A refusal is a refused call with an output that explains why. Only the model sees it; it
// is not stored, and a resumed run has lost it.
type refusal struct {
	place int // in the output, of the item that follows
	items [2]berth.Item
}

// jittered returns a random duration near d, which spreads work that started at the same
// time.
func jittered(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2+1) }

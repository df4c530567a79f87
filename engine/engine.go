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
	"crypto/cipher"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// defaultLease is the default of Limits.Lease.
const defaultLease = 30 * time.Second

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
	Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment,
		last berth.ContainerID) (berth.ContainerID, error)
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
	Fetcher    Fetcher  // of file_url; nil refuses file_url
	Owner      string   // this server's name on leases, which must survive a restart
	Quota      Quota    // default no limit
	EndUsers   EndUsers // default: callers have no end users
	Retry      Retry
	Limits     Limits
	Answered   Answered     // default nil
	Stores     Stores       // default: every project stores responses
	Held       Held         // default: nothing is held
	Room       func() error // returns an error for the client while no response may be stored; default nil: no limit
	Observer   Observer     // default nil
	Tracer     trace.Tracer // of responses' spans; nil: none
	Log        *slog.Logger

	// Placement knows which server has a container or a run. Default: cluster.Solo.
	Placement cluster.Placement

	// Forwarder passes requests to upstreams. The Engine closes it. Default: one of the same models, usages and quota.
	Forwarder *Forwarder

	// Seal seals encrypted_content, which only a server with the same key can decrypt. The
	// default is a random key for the life of the Engine.
	Seal cipher.AEAD
}

// Answered is told of the answers to approval requests in the input of a response, before they take effect. Its error
// refuses the response.
type Answered func(ctx context.Context, caller berth.Caller, id berth.ResponseID, answers []berth.ApprovalAnswer) error

// Stores reports whether a project stores responses. Those of a project that does not have store: false.
type Stores func(ctx context.Context, p berth.ProjectID) (bool, error)

// Held returns an error for the client if a response must not be deleted.
type Held func(ctx context.Context, p berth.ProjectID, ids ...string) error

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
	if opts.Placement == nil {
		opts.Placement = cluster.Solo{}
	}
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	if opts.Room == nil {
		opts.Room = func() error { return nil }
	}
	if opts.Forwarder == nil {
		opts.Forwarder = NewForwarder(ForwarderOptions{Models: opts.Models, Usages: opts.Usages, Quota: opts.Quota,
			Retry: opts.Retry, Log: opts.Log})
	}
	e := &Engine{Options: opts, live: newRegistry()}
	e.transcripts = transcript.New(transcript.Options{Responses: opts.Responses, Objects: opts.Objects,
		Files:   opts.Files,
		Fetcher: opts.Fetcher, Tools: opts.Tools, Cache: opts.Limits.Cache, Seal: opts.Seal})
	e.base, e.detach = context.WithCancelCause(context.Background())
	opts.Journal.AtEnd(addToConversation)
	return e
}

// Running returns the number of responses that this process works on.
func (e *Engine) Running() int { return e.live.count() }

func (e *Engine) lease() store.Lease {
	return store.Lease{Owner: e.Owner, Until: time.Now().Add(e.Limits.Lease)}
}

// defaultReturn is the default of Limits.Return.
const defaultReturn = 10 * time.Second

// addToConversation returns the items that a response adds to its conversation when it
// ends. A failed or cancelled response adds none.
func addToConversation(r *store.Response, final *berth.Response) []*store.Object {
	if final.Conversation == nil || final.Status != berth.StatusCompleted && final.Status != berth.StatusIncomplete {
		return nil
	}
	items := slices.Concat(r.Input, final.Output)
	items = slices.DeleteFunc(items, func(it berth.Item) bool { return it.Type() == berth.ItemCompactionTrigger })
	return transcript.ConversationItems(final.Conversation.ID, items)
}

// Package chat serves the Chat Completions API. It translates only: the request of a
// completion becomes a request for responses, the engine answers it once for each choice,
// and the events of the responses become chunks or messages. A completion with store: true
// is stored as an object of its own; its responses are not stored.
package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/journal"
)

// Options are what the door needs.
type Options struct {
	Engine      *engine.Engine
	Journal     *journal.Journal // the engine's journal
	Completions *completions.Store
	// Stores reports whether a project stores completions. Nil: every project does.
	Stores   func(ctx context.Context, p berth.ProjectID) (bool, error)
	EndUsers *enduser.Service
	Version  string // the server's version, for system_fingerprint
}

// A Door serves /v1/chat/completions.
type Door struct {
	Options
	rules *completionRules
}

// New returns a door.
func New(opts Options) *Door { return &Door{opts, newRules(opts.Engine.Tools)} }

// prefixCompletion is the prefix of the ids of completions, as at OpenAI.
const prefixCompletion = "chatcmpl-"

// An answer is a completion in progress.
type answer struct {
	request *completionRequest
	caller  berth.Caller
	head    completion // without choices and usage
	choices []*completionChoice
}

// Create serves POST /v1/chat/completions. Each choice is a response of the engine, whose
// events are read from the journal. The runs end with the request's context, so they are
// cancelled if the client disconnects.
func (d *Door) Create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	req, err := decode(x, r, d.rules)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	a, err := d.start(ctx, c, req)
	if err != nil {
		return req.wordError(err)
	}
	x.Settle()
	if req.Stream {
		err := d.stream(x, r.WithContext(ctx), c, a, leave)
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // a keep-alive has detected that the client is gone
		}
		return err
	}
	var failure error
	for _, failure = range d.chosen(ctx, c.Project, a.choices) {
	}
	if failure != nil {
		return a.fail(x.Header(), failure)
	}
	a.settle()
	if err := d.save(ctx, a, x.Header().Get("x-request-id")); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, a.whole())
}

// start starts a response for each choice.
func (d *Door) start(ctx context.Context, c berth.Caller, req *completionRequest) (*answer, error) {
	response, err := req.response(d.rules)
	if err != nil {
		return nil, err
	}
	if response.Metadata == nil {
		response.Metadata = req.Metadata
	}
	if d.EndUsers != nil {
		if c, err = d.EndUsers.FromRequest(ctx, c, response); err != nil {
			return nil, err
		}
	}
	a := &answer{request: req, caller: c, head: completion{ID: berth.NewID(prefixCompletion), Object: "chat.completion",
		Created: time.Now().Unix(), Model: req.Model, ServiceTier: "default",
		SystemFingerprint: d.systemFingerprint(req.Model), Metadata: req.Metadata}}
	n := 1
	if req.N != nil {
		n = *req.N
	}
	for i := range n {
		created, err := d.Engine.Create(ctx, c, response)
		if err != nil {
			return nil, err // the end of ctx cancels the responses already started
		}
		a.choices = append(a.choices, newCompletionChoice(i, req, created, d.Engine.Tools))
	}
	return a, nil
}

// systemFingerprint returns a hash of the server's version and the model.
func (d *Door) systemFingerprint(model string) string {
	sum := sha256.Sum256([]byte(d.Version + "\x00" + model))
	return "fp_" + hex.EncodeToString(sum[:5])
}

// wordError converts an error about a response to one about its completion.
func (c *completionRequest) wordError(err error) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Param == "" {
		return err
	}
	renamed := *e
	renamed.Param = c.param(e.Param)
	return &renamed
}

// fail returns the client's error for a failed completion. If tools have run on this server,
// it forbids the client's automatic retry, which would run them again.
func (a *answer) fail(h http.Header, err error) error {
	if slices.ContainsFunc(a.choices, func(c *completionChoice) bool { return c.acted }) {
		h.Set("x-should-retry", "false")
	}
	return a.request.wordError(err)
}

// chosen follows the responses of all choices concurrently and yields the chunks of a
// stream, until all have ended or one has failed. A failure is yielded last. After the
// iteration, the choices do not change.
func (d *Door) chosen(ctx context.Context, p berth.ProjectID, choices []*completionChoice) iter.Seq2[[]chunkChoice,
	error] {
	type update struct {
		chunks []chunkChoice
		err    error
	}
	if len(choices) == 1 {
		return func(yield func([]chunkChoice, error) bool) { d.followChoice(ctx, p, choices[0], yield) }
	}
	return func(yield func([]chunkChoice, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		updates := make(chan update)
		var followers sync.WaitGroup
		for _, c := range choices {
			followers.Go(func() {
				d.followChoice(ctx, p, c, func(chunks []chunkChoice, err error) bool {
					select {
					case updates <- update{chunks, err}:
						return err == nil
					case <-ctx.Done():
						return false
					}
				})
			})
		}
		go func() {
			followers.Wait()
			close(updates)
		}()
		defer followers.Wait() // from then on, the choices do not change
		defer stop()
		for n := range updates {
			if !yield(n.chunks, n.err) || n.err != nil {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(nil, followError(ctx, err))
		}
	}
}

// followChoice calls emit with a choice's chunks until its end. Chunks of events that are
// there at the same time come together.
func (d *Door) followChoice(ctx context.Context, p berth.ProjectID, c *completionChoice, emit func([]chunkChoice,
	error) bool) {
	for events, err := range d.Journal.FollowPages(ctx, p, c.response, -1) {
		if err != nil {
			emit(nil, followError(ctx, err))
			return
		}
		chunks, err := c.applyAll(events)
		if len(chunks) > 0 && !emit(chunks, nil) {
			return
		}
		if err != nil {
			emit(nil, err)
			return
		}
	}
	if c.finish == "" {
		emit(nil, errors.New("the journal of "+string(c.response)+" has no end"))
	}
}

// followError returns the client's error for a failed read of a response's events.
func followError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err,
			Message: "The server is stopping. Send the request again in a moment."}
	}
	return err
}

// whole returns the completion. All choices must have ended.
func (a *answer) whole() completion {
	whole := a.head
	for _, c := range a.choices {
		whole.Choices = append(whole.Choices, c.whole())
	}
	whole.Usage = a.usage()
	return whole
}

// settle sets the service tier and the moderation of the completion to those of its
// responses. All choices must have ended.
func (a *answer) settle() {
	for _, c := range a.choices {
		a.head.ServiceTier = cmp.Or(c.tier, a.head.ServiceTier)
		a.head.Moderation = a.head.Moderation.add(c.scores)
	}
}

// usage returns the sum of the usage of all choices.
func (a *answer) usage() completionUsage {
	var sum berth.Usage
	for _, c := range a.choices {
		sum.Add(c.usage)
	}
	return newCompletionUsage(sum)
}

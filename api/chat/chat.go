// Package chat is the door of Chat Completions. It is translation only: a completion's
// request becomes one of responses, the engine answers it once for each choice, and the
// events of those responses become chunks or one message. What a client asks to store is a
// document of its own; the responses behind it are not stored.
package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/store"
)

// Options are what the door needs.
type Options struct {
	Engine  *engine.Engine
	Journal *journal.Journal // of the engine
	Objects store.Objects    // of stored completions
	Version string           // of the server, for system_fingerprint
}

// A Door serves /v1/chat/completions.
type Door struct {
	Options
	rules *completionRules
}

// New returns a door.
func New(opts Options) *Door { return &Door{opts, newRules(opts.Engine.Tools)} }

// prefixCompletion is the prefix of the ids of completions, as recorded from the hosted service.
const prefixCompletion = "chatcmpl-"

// An answer is a completion while its responses run.
type answer struct {
	asked   *completionRequest
	head    completion // without choices and usage
	choices []*completionChoice
}

// Create serves POST /v1/chat/completions. Each choice is a response of the engine, whose
// events are read from the journal. Its run ends with the request's context, which ends when
// the client goes.
func (d *Door) Create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	asked, err := decode(x, r, d.rules)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	a, err := d.start(ctx, c, asked)
	if err != nil {
		return asked.wordError(err)
	}
	x.Settle()
	if asked.Stream {
		err := d.stream(x, r.WithContext(ctx), c, a, leave)
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // the keep-alive found that the client has gone
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
	if err := d.save(ctx, c.Project, a, x.Header().Get("x-request-id")); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, a.whole())
}

// start starts a response for each choice.
func (d *Door) start(ctx context.Context, c berth.Caller, asked *completionRequest) (*answer, error) {
	req, err := asked.response(d.rules)
	if err != nil {
		return nil, err
	}
	a := &answer{asked: asked, head: completion{ID: berth.NewID(prefixCompletion), Object: "chat.completion",
		Created: time.Now().Unix(), Model: asked.Model, ServiceTier: "default", SystemFingerprint: d.systemFingerprint(asked.Model), Metadata: asked.Metadata}}
	n := 1
	if asked.N != nil {
		n = *asked.N
	}
	for i := range n {
		created, err := d.Engine.Create(ctx, c, req)
		if err != nil {
			return nil, err // the end of ctx ends those that were started
		}
		a.choices = append(a.choices, newCompletionChoice(i, asked, created, d.Engine.Tools))
	}
	return a, nil
}

// systemFingerprint identifies the server and the model without naming them.
func (d *Door) systemFingerprint(model string) string {
	sum := sha256.Sum256([]byte(d.Version + "\x00" + model))
	return "fp_" + hex.EncodeToString(sum[:5])
}

// wordError returns an error about a response as one about its completion.
func (c *completionRequest) wordError(err error) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Param == "" {
		return err
	}
	renamed := *e
	renamed.Param = c.param(e.Param)
	return &renamed
}

// fail returns an error for the client. Clients send a request again by themselves after
// some errors; what tools have done here would then be done twice.
func (a *answer) fail(h http.Header, err error) error {
	if slices.ContainsFunc(a.choices, func(c *completionChoice) bool { return c.acted }) {
		h.Set("x-should-retry", "false")
	}
	return a.asked.wordError(err)
}

// chosen follows the responses of all choices at once and yields the chunks of a stream,
// until all have ended or one has failed; the failure is the last that it yields. After that
// the choices do not change.
func (d *Door) chosen(ctx context.Context, p berth.ProjectID, choices []*completionChoice) iter.Seq2[[]chunkChoice, error] {
	type update struct {
		chunks []chunkChoice
		err    error
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
		defer followers.Wait() // then the choices do not change any more
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

// followChoice calls emit with a choice's chunks until its end.
func (d *Door) followChoice(ctx context.Context, p berth.ProjectID, c *completionChoice, emit func([]chunkChoice, error) bool) {
	for stored, err := range d.Journal.Follow(ctx, p, c.response, -1) {
		if err != nil {
			emit(nil, followError(ctx, err))
			return
		}
		var ev berth.Event
		if err := json.Unmarshal(stored.Data, &ev); err != nil {
			emit(nil, err)
			return
		}
		chunks, err := c.take(&ev)
		if (len(chunks) > 0 || err != nil) && !emit(chunks, err) {
			return
		}
	}
	if c.finish == "" {
		emit(nil, errors.New("the journal of "+string(c.response)+" has no end"))
	}
}

// followError returns the error of a Follow that ended before the response did.
func followError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "The server is stopping. Send the request again in a moment."}
	}
	return err
}

// whole returns the completion when all choices have ended.
func (a *answer) whole() completion {
	whole := a.head
	for _, c := range a.choices {
		whole.Choices = append(whole.Choices, c.whole())
	}
	whole.Usage = a.usage()
	return whole
}

// settle takes over what the responses say in the end of the whole. All choices have ended.
func (a *answer) settle() {
	for _, c := range a.choices {
		a.head.ServiceTier = cmp.Or(c.tier, a.head.ServiceTier)
		a.head.Moderation = a.head.Moderation.add(c.scores)
	}
}

// usage sums up what all choices have used: each is a response of its own.
func (a *answer) usage() completionUsage {
	var sum berth.Usage
	for _, c := range a.choices {
		sum.Add(c.usage)
	}
	return newCompletionUsage(sum)
}

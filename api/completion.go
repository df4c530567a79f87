package api

import (
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
)

// prefixCompletion begins the ids of completions, as recorded from the hosted service.
const prefixCompletion = "chatcmpl-"

// An answering is a completion while its responses are being answered.
type answering struct {
	asked   *completionRequest
	head    completion // without choices and usage
	choices []*completionChoice
}

// createCompletion serves POST /v1/chat/completions. It is translation only: each
// choice is a response of the engine's, followed in its journal. Those runs end
// with the request's context, that is when the client goes.
func (s *server) createCompletion(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	asked, err := s.decodeCompletionRequest(x, r)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	a, err := s.beginCompletion(ctx, c, asked)
	if err != nil {
		return asked.wordError(err)
	}
	x.Settle()
	if asked.Stream {
		err := s.streamCompletion(x, r.WithContext(ctx), c, a, leave)
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // the keep-alive found that the client has gone
		}
		return err
	}
	var failure error
	for _, failure = range s.chosen(ctx, c.Project, a.choices) {
	}
	if failure != nil {
		return a.fail(x.Header(), failure)
	}
	if err := s.keepCompletion(ctx, c.Project, a, x.Header().Get("x-request-id")); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, a.whole())
}

// beginCompletion starts a response for each choice.
func (s *server) beginCompletion(ctx context.Context, c berth.Caller, asked *completionRequest) (*answering, error) {
	req, err := asked.response()
	if err != nil {
		return nil, err
	}
	a := &answering{asked: asked, head: completion{ID: berth.NewID(prefixCompletion), Object: "chat.completion",
		Created: time.Now().Unix(), Model: asked.Model, ServiceTier: "default", SystemFingerprint: s.systemFingerprint(asked.Model), Metadata: asked.Metadata}}
	n := 1
	if asked.N != nil {
		n = *asked.N
	}
	for i := range n {
		created, err := s.Engine.Create(ctx, c, req)
		if err != nil {
			return nil, err // the end of ctx ends those begun
		}
		a.choices = append(a.choices, newCompletionChoice(i, asked, created))
	}
	return a, nil
}

// systemFingerprint says which server and model answered, without telling.
func (s *server) systemFingerprint(model string) string {
	sum := sha256.Sum256([]byte(s.Version + "\x00" + model))
	return "fp_" + hex.EncodeToString(sum[:5])
}

// wordError words an error about a response as one about its completion.
func (c *completionRequest) wordError(err error) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Param == "" {
		return err
	}
	renamed := *e
	renamed.Param = c.param(e.Param)
	return &renamed
}

// fail words an error for the client. Clients send a request again by themselves
// after some errors; what tools have done here would then be done twice.
func (a *answering) fail(h http.Header, err error) error {
	if slices.ContainsFunc(a.choices, func(c *completionChoice) bool { return c.acted }) {
		h.Set("x-should-retry", "false")
	}
	return a.asked.wordError(err)
}

// chosen follows the responses of all choices at once and yields what a stream
// tells of them, until all have ended or one has failed, which is the last that it
// yields. After that nobody changes the choices.
func (s *server) chosen(ctx context.Context, p berth.ProjectID, choices []*completionChoice) iter.Seq2[[]chunkChoice, error] {
	type news struct {
		chunks []chunkChoice
		err    error
	}
	return func(yield func([]chunkChoice, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		told := make(chan news)
		var followers sync.WaitGroup
		for _, c := range choices {
			followers.Go(func() {
				s.followChoice(ctx, p, c, func(chunks []chunkChoice, err error) bool {
					select {
					case told <- news{chunks, err}:
						return err == nil
					case <-ctx.Done():
						return false
					}
				})
			})
		}
		go func() {
			followers.Wait()
			close(told)
		}()
		defer followers.Wait() // nobody writes to the choices any more
		defer stop()
		for n := range told {
			if !yield(n.chunks, n.err) || n.err != nil {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(nil, followCompletionError(ctx, err))
		}
	}
}

// followChoice tells a choice's events until its end.
func (s *server) followChoice(ctx context.Context, p berth.ProjectID, c *completionChoice, tell func([]chunkChoice, error) bool) {
	for stored, err := range s.Journal.Follow(ctx, p, c.response, -1) {
		if err != nil {
			tell(nil, followCompletionError(ctx, err))
			return
		}
		var ev berth.Event
		if err := json.Unmarshal(stored.Data, &ev); err != nil {
			tell(nil, err)
			return
		}
		chunks, err := c.take(&ev)
		if (len(chunks) > 0 || err != nil) && !tell(chunks, err) {
			return
		}
	}
	if c.finish == "" {
		tell(nil, errors.New("the journal of "+string(c.response)+" has no end"))
	}
}

// followCompletionError words the end of a Follow that came before the response's.
func followCompletionError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "The server is stopping. Send the request again in a moment."}
	}
	return err
}

// whole returns the completion when all choices have ended.
func (a *answering) whole() completion {
	whole := a.head
	for _, c := range a.choices {
		whole.Choices = append(whole.Choices, c.whole())
	}
	whole.Usage = a.usage()
	return whole
}

// usage is what all choices have used: each was asked for on its own.
func (a *answering) usage() completionUsage {
	var sum berth.Usage
	for _, c := range a.choices {
		sum.Add(c.usage)
	}
	return newCompletionUsage(sum)
}

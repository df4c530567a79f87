// Package model says what a model provider must do, and routes model names to providers.
package model

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/berth-run/berth"
)

// A Provider answers one turn with a model.
//
// To add a provider:
//  1. implement Provider in a package beside chat;
//  2. run modeltest.Run from its test, against a double that speaks the
//     vendor's documented wire over HTTP;
//  3. name it in cmd/berth's provider table and in the configuration manual.
type Provider interface {
	// Stream asks the model for one turn and yields what it says, as it says it.
	// The sequence ends with a Finish, or with an error after which nothing
	// follows. Errors that the client should see are *berth.Error: CodeRateLimited
	// or CodeUpstream, which may pass (RetryAfter says when, if the upstream did),
	// CodeInvalid (the upstream refused the request), CodeNotFound (it has no such
	// model) or CodeUnavailable (the operator must mend something, such as the
	// key), which will not; their messages hold no secret. The caller retries; a
	// provider does not. The request is not changed or kept. Ending the iteration
	// early, or ctx, closes the upstream connection at once; after ctx ended the
	// error is its cause.
	Stream(ctx context.Context, req *Request) iter.Seq2[Delta, error]
}

// A Lister is a Provider that can say which models it serves.
type Lister interface {
	Models(ctx context.Context) ([]berth.Model, error)
}

// A Request is one turn as a provider sees it. Hosted tools have been lowered:
// Tools holds functions only and Items holds only messages, reasoning, function
// calls and function call outputs (and types that Berth does not know, which a
// provider drops unless it speaks Responses itself). File ids have been replaced
// by data.
type Request struct {
	Model             string // the upstream's name
	Instructions      string
	Items             []berth.Item
	Tools             []berth.FunctionTool
	ToolChoice        ToolChoice
	ParallelToolCalls bool
	MaxOutputTokens   int // 0 is the provider's default
	Temperature       *float64
	TopP              *float64
	TopLogprobs       *int
	Logprobs          bool
	Text              berth.TextConfig
	Reasoning         berth.ReasoningConfig
	User              string
	Hints             Hints
	Sampling          berth.Sampling // what a provider cannot do of it, it refuses: RefuseSampling

	// What only a Provider heeds that has several upstreams to ask.
	Prefer  Origin // who answered the turn before this, as far as is known
	Attempt int    // how often this turn has been asked before
}

// An Origin is which of several upstreams answered a turn: their names in the
// configuration, and the upstream's for the model. It is zero where there is one
// upstream only, without a name.
type Origin struct {
	Upstream string
	Key      string
	Model    string
}

// Hints are fields of a request that change nothing in what is said. A provider
// whose wire has no word for one leaves it out.
type Hints struct {
	PromptCacheKey       string
	PromptCacheRetention string
	SafetyIdentifier     string
	ServiceTier          string
	PromptCacheOptions   *berth.PromptCacheOptions
	AccessPrograms       json.RawMessage // as in the request
	Moderation           json.RawMessage // likewise; it asks for scores at most
}

// A ToolChoice says whether and which tool must be called.
type ToolChoice struct {
	Mode string // "auto", "none", "required" or "function"
	Name string // for "function"
}

// A Delta is one thing that a model said: Text, Refusal, Thought, Call, Item or Finish.
type Delta interface{ delta() }

type (
	// Text is more of the answer.
	Text struct {
		Text     string
		Logprobs []json.RawMessage // in the wire's form of response.output_text.delta
		Phase    string            // "commentary" or "final_answer", if the upstream tells
	}

	// Refusal is more of a refusal to answer.
	Refusal struct{ Text string }

	// Thought is more of the model's reasoning: of its summary, or of the
	// reasoning itself where the upstream shows it.
	Thought struct {
		Text    string
		Summary bool
	}

	// Call is more of a function call. The first Call of an Index carries ID and
	// Name; Arguments are pieces of JSON as the model writes it, possibly broken.
	// Calls of several indexes may come interleaved.
	Call struct {
		Index     int
		ID        string // call_id; a provider makes one where the upstream gives none
		Name      string
		Arguments string
	}

	// Item is a whole output item to be kept as it is. With Ends, it is what the
	// Text and Refusals, or the Thoughts, since the last item amount to, and takes
	// the place of what they opened: a message with fields that only this provider
	// knows, or reasoning with a signature that only it understands. Without an id
	// it gets one.
	Item struct {
		Item berth.Item
		Ends bool
	}

	// Finish ends the turn.
	Finish struct {
		Reason FinishReason
		Usage  berth.Usage
		Model  string // the precise name that answered, if the upstream tells
		Origin Origin
		Cost   *berth.Cost // nil if the upstream's price is not known

		ServiceTier string          // that the upstream used, if it tells
		Moderation  json.RawMessage // its scores in the form of Responses, if they were asked for
	}
)

func (Text) delta()    {}
func (Refusal) delta() {}
func (Thought) delta() {}
func (Call) delta()    {}
func (Item) delta()    {}
func (Finish) delta()  {}

// A FinishReason says why a turn ended.
type FinishReason string

const (
	FinishStop          FinishReason = "stop" // also after calls
	FinishLength        FinishReason = "length"
	FinishContentFilter FinishReason = "content_filter"
)

// Package model defines what a model provider must do, and routes model names to
// providers.
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
//  3. add it to the providers of package server and to the configuration manual.
type Provider interface {
	// Stream sends one turn to the model and yields its output as it arrives. The
	// sequence ends with a Finish, or with an error after which nothing follows.
	//
	// Errors that the client should see are *berth.Error, and their messages hold no
	// secret. CodeRateLimited and CodeUpstream may pass: RetryAfter returns the wait,
	// if the upstream named one. These do not pass: CodeInvalid (the upstream refused
	// the request), CodeNotFound (it does not have the model) and CodeUnavailable (the
	// operator must fix something, such as the key).
	//
	// A provider does not retry; the caller does. It neither changes nor retains the
	// request. When the caller stops iterating or ctx ends, it closes the upstream
	// connection immediately; after ctx ended, the error is its cause.
	Stream(ctx context.Context, req *Request) iter.Seq2[Delta, error]
}

// A Lister is a Provider that can list its models.
type Lister interface {
	Models(ctx context.Context) ([]berth.Model, error)
}

// A Request is one turn as a provider receives it. Hosted tools have been lowered:
// Tools holds functions only, and Items holds only messages, reasoning, function calls
// and function call outputs. Tools that the upstream has itself, see ToolOwner, are
// functions with a Native, and their calls and outputs remain as they are. Item types
// unknown to Berth remain; a provider drops them unless its upstream speaks Responses. File
// ids have been replaced by data.
type Request struct {
	Model             string // the upstream's name for it
	Instructions      string
	Items             []berth.Item
	Tools             []berth.FunctionTool
	ToolChoice        ToolChoice
	ParallelToolCalls bool
	MaxOutputTokens   int // 0 means the provider's default
	Temperature       *float64
	TopP              *float64
	TopLogprobs       *int
	Logprobs          bool
	Text              berth.TextConfig
	Reasoning         berth.ReasoningConfig
	User              string
	Hints             Hints
	MaxToolCalls      int            // of the calls of a FunctionTool.Native that the upstream makes; 0 means no limit
	Sampling          berth.Sampling // a provider refuses the fields that it does not support: RefuseSampling

	// Forwarded is the request of another endpoint, which only a Forwarder gets. It
	// replaces all fields above but Model.
	Forwarded *Forwarded

	// Only a Provider with several upstreams uses these.
	Prefer  Origin // what answered the turn before; zero if not known
	Attempt int    // how many attempts at this turn came before
}

// An Origin names the upstream that answered a turn, its key, both by their names in
// the configuration, and the upstream's name for the model. It is zero if there is
// only one upstream and it has no name.
type Origin struct {
	Upstream string
	Key      string
	Model    string
}

// Hints are fields of a request that do not change the answer's content. A provider
// omits those that its wire does not have.
type Hints struct {
	PromptCacheKey       string
	PromptCacheRetention string
	SafetyIdentifier     string
	ServiceTier          string
	PromptCacheOptions   *berth.PromptCacheOptions
	AccessPrograms       json.RawMessage // as in the request
	Moderation           json.RawMessage // as in the request; it requests scores at most
}

// A ToolChoice states whether the model must call a tool, and which.
type ToolChoice struct {
	Mode string // "auto", "none", "required" or "function"
	Name string // for "function"
}

// A Delta is one piece of a model's output: Text, Refusal, Thought, Call, Item, Native
// or Finish.
type Delta interface{ delta() }

type (
	// Text is a piece of the answer.
	Text struct {
		Text     string
		Logprobs []json.RawMessage // in the wire's form of response.output_text.delta
		Phase    string            // "commentary" or "final_answer", if the upstream reports it
	}

	// Refusal is a piece of a refusal to answer.
	Refusal struct{ Text string }

	// Thought is a piece of the model's reasoning: of its summary, or of the reasoning
	// itself if the upstream sends it.
	Thought struct {
		Text    string
		Summary bool
	}

	// Call is a piece of a function call. The first Call of an Index carries ID and
	// Name. Arguments are pieces of JSON as the model wrote it, possibly invalid.
	// Calls of several indexes may be interleaved.
	Call struct {
		Index     int
		ID        string // call_id; the provider makes one if the upstream sends none
		Name      string
		Arguments string
	}

	// Item is a whole output item, stored unchanged. If Ends is set, it replaces the
	// item opened by the Text and Refusals, or the Thoughts, since the last item: a
	// message with fields that only this provider knows, or reasoning with a signature
	// that only it understands. An item without an id gets one.
	Item struct {
		Item berth.Item
		Ends bool
	}

	// Native is a step of an output item that the upstream makes with a tool of its own: a
	// FunctionTool.Native. The first step of an Index is response.output_item.added and the
	// last one response.output_item.done, both with the item; those between are the tool's
	// events about it. The engine stores them unchanged.
	Native struct {
		Index int
		Event berth.Event
	}

	// Finish ends the turn.
	Finish struct {
		Reason FinishReason
		Usage  berth.Usage
		Model  string // the precise name of the model that answered, if the upstream reports it
		Origin Origin
		Cost   *berth.Cost // nil if the upstream's price is not known

		Stop        string          // the one of Sampling.Stop that ended the answer, if the upstream reports it
		ServiceTier string          // used by the upstream, if it reports one
		Moderation  json.RawMessage // scores in the form of Responses, if the request wanted them
	}
)

func (Text) delta()    {}
func (Refusal) delta() {}
func (Thought) delta() {}
func (Call) delta()    {}
func (Item) delta()    {}
func (Native) delta()  {}
func (Finish) delta()  {}

// A FinishReason is the reason why a turn ended.
type FinishReason string

const (
	FinishStop          FinishReason = "stop" // also after calls
	FinishLength        FinishReason = "length"
	FinishContentFilter FinishReason = "content_filter"
)

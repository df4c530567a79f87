package chat

import (
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// An answer is a stream of chunks as it comes in. Upstreams differ in how they cut
// calls into pieces; what they have in common is enough.
type answer struct {
	model  string
	reason string
	usage  berth.Usage
	calls  []call // in the order in which they began
}

// A call is one that has begun.
type call struct {
	index int64
	id    string
}

// take turns a chunk into deltas.
func (a *answer) take(chunk *openai.ChatCompletionChunk) ([]model.Delta, error) {
	if e := chunk.JSON.ExtraFields["error"]; e.Valid() {
		return nil, errorInStream(e.Raw())
	}
	if chunk.Model != "" {
		a.model = chunk.Model
	}
	if chunk.JSON.Usage.Valid() {
		u := chunk.Usage
		a.usage = berth.Usage{InputTokens: int(u.PromptTokens), OutputTokens: int(u.CompletionTokens), TotalTokens: int(u.TotalTokens),
			InputTokenDetails:  berth.InputTokenDetails{CachedTokens: int(u.PromptTokensDetails.CachedTokens)},
			OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: int(u.CompletionTokensDetails.ReasoningTokens)}}
	}
	if len(chunk.Choices) == 0 {
		return nil, nil
	}
	choice := chunk.Choices[0]
	if choice.FinishReason != "" {
		a.reason = choice.FinishReason
	}
	var out []model.Delta
	if t := thought(choice.Delta); t != "" {
		out = append(out, model.Thought{Text: t})
	}
	if choice.Delta.Content != "" {
		out = append(out, model.Text{Text: choice.Delta.Content, Logprobs: logprobs(choice.Logprobs.Content)})
	}
	if choice.Delta.Refusal != "" {
		out = append(out, model.Refusal{Text: choice.Delta.Refusal})
	}
	for _, c := range choice.Delta.ToolCalls {
		out = append(out, a.piece(c))
	}
	return out, nil
}

// thought is reasoning that the upstream shows, which has no name in the standard.
func thought(d openai.ChatCompletionChunkChoiceDelta) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		var s string
		if f := d.JSON.ExtraFields[name]; f.Valid() && json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// piece turns a piece of a call into a delta. A new id begins a new call, whatever
// the index: some servers give all calls the index 0.
func (a *answer) piece(c openai.ChatCompletionChunkChoiceDeltaToolCall) model.Call {
	n := len(a.calls) - 1
	for n >= 0 && a.calls[n].index != c.Index {
		n--
	}
	if n < 0 || c.ID != "" && c.ID != a.calls[n].id && c.Function.Name != "" {
		id := c.ID
		if id == "" {
			id = berth.NewID(berth.PrefixCall)
		}
		a.calls = append(a.calls, call{c.Index, id})
		return model.Call{Index: len(a.calls) - 1, ID: id, Name: c.Function.Name, Arguments: c.Function.Arguments}
	}
	return model.Call{Index: n, Arguments: c.Function.Arguments}
}

// finish ends the answer. A stream that broke off without a reason is an error.
func (a *answer) finish() (model.Finish, error) {
	out := model.Finish{Reason: model.FinishStop, Usage: a.usage, Model: a.model}
	switch a.reason {
	case "":
		return out, &berth.Error{Code: berth.CodeUpstream, Message: "The model's server ended its answer in the middle."}
	case "length":
		out.Reason = model.FinishLength
	case "content_filter":
		out.Reason = model.FinishContentFilter
	}
	return out, nil
}

// errorInStream reads an error that came after the status had been sent.
func errorInStream(raw string) error {
	var e struct {
		Message string `json:"message"`
		Code    any    `json:"code"`
	}
	if json.Unmarshal([]byte(raw), &e) != nil || e.Message == "" {
		e.Message = "The model's server reported an error."
	}
	out := &berth.Error{Code: berth.CodeUpstream, Message: e.Message}
	if fmt.Sprint(e.Code) == "429" || fmt.Sprint(e.Code) == "rate_limit_exceeded" {
		out.Code = berth.CodeRateLimited
	}
	return out
}

// logprobs are in the form of response.output_text.delta.
func logprobs(tokens []openai.ChatCompletionTokenLogprob) []json.RawMessage {
	type top struct {
		Token   string  `json:"token"`
		Bytes   []int64 `json:"bytes"`
		Logprob float64 `json:"logprob"`
	}
	var out []json.RawMessage
	for _, t := range tokens {
		p := struct {
			top
			TopLogprobs []top `json:"top_logprobs"`
		}{top: top{t.Token, t.Bytes, t.Logprob}, TopLogprobs: []top{}}
		for _, alternative := range t.TopLogprobs {
			p.TopLogprobs = append(p.TopLogprobs, top{alternative.Token, alternative.Bytes, alternative.Logprob})
		}
		raw, err := json.Marshal(p)
		if err != nil {
			return nil // a logprob that is not a number
		}
		out = append(out, raw)
	}
	return out
}

package chat

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
	"github.com/berth-run/berth/model/upstream"
)

// Limits on the buffered part of an answer, in bytes.
const (
	maxChunk = 16 << 20
	maxWhole = 64 << 20 // an answer that does not stream
)

// readers holds the *bufio.Reader of answers. Each request would otherwise allocate one.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, sse.BufferSize) }}

// An answer decodes one answer of an upstream.
type answer struct {
	log *slog.Logger

	started bool // a chunk with choices has arrived
	model   string
	tier    string
	reason  string // the upstream's finish_reason
	stop    string // the stop sequence that it reports, or ""
	done    bool   // nothing follows
	usage   berth.Usage
	calls   calls
	listed  bool // tool_calls arrived
}

func newAnswer(req *model.Request, log *slog.Logger) *answer {
	return &answer{log: log, calls: calls{ids: dialogue.NewIDs{Items: req.Items}}}
}

// Events implements upstream.Answer. Some upstreams send one JSON object instead of a
// stream, or start a stream and then print an error as plain JSON. That object is then
// the only event.
func (a *answer) Events(in io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buffered := readers.Get().(*bufio.Reader)
		buffered.Reset(in)
		defer func() {
			buffered.Reset(nil)
			readers.Put(buffered)
		}()
		first, err := firstByte(buffered)
		switch {
		case err == io.EOF:
			return
		case err != nil:
			yield(nil, err)
			return
		case first == '{':
			whole, err := io.ReadAll(io.LimitReader(buffered, maxWhole))
			if err != nil {
				yield(nil, err)
				return
			}
			yield(whole, nil)
			return
		case first == '<':
			yield(nil, errors.New("the upstream sent an HTML page"))
			return
		}
		for ev, err := range sse.NewReader(buffered, maxChunk).Events() {
			data := bytes.TrimSpace(ev.Data)
			if err == nil && (len(data) == 0 || ev.Type != "" && data[0] != '{') {
				continue // a keep-alive
			}
			if ev.Type == "error" && !bytes.Contains(data, []byte(`"error"`)) {
				data = fmt.Appendf(nil, `{"error":%s}`, data)
			}
			if !yield(data, err) {
				return
			}
		}
	}
}

// firstByte returns the first byte that is not white space, without consuming it.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b, in.UnreadByte()
		}
	}
}

// Progress implements upstream.Answer.
func (a *answer) Progress() upstream.Progress {
	return upstream.Progress{Started: a.started, Ended: a.reason != "", Done: a.done}
}

// Take implements upstream.Answer.
func (a *answer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	if bytes.HasPrefix(data, []byte("[DONE]")) {
		a.done = true
		return out, nil
	}
	if name, tier, text, ok := textChunk(data); ok {
		a.model, a.tier = cmp.Or(name, a.model), cmp.Or(tier, a.tier)
		a.started = true
		return append(out, model.Text{Text: text}), nil
	}
	var c chunk
	if err := upstream.Decode(data, &c, &essential{}, a.log); err != nil {
		return out, err
	}
	if len(c.Error) > 0 && !bytes.Equal(c.Error, []byte("null")) {
		return out, &upstream.Refusal{Body: data}
	}
	if c.Model != "" {
		a.model = c.Model
	}
	if c.ServiceTier != "" {
		a.tier = c.ServiceTier
	}
	if c.Usage != nil {
		a.usage = c.Usage.total()
	}
	a.started = a.started || len(c.Choices) > 0
	for i := range c.Choices {
		if c.Choices[i].Index == 0 {
			out = a.choose(&c.Choices[i], out)
		}
	}
	return out, nil
}

// choose appends the deltas of the answer's only choice.
func (a *answer) choose(c *choice, out []model.Delta) []model.Delta {
	w := c.Delta
	if w == nil {
		w = c.Message
		a.done = w != nil // the answer is not streamed
	}
	if w != nil {
		thought := w.Content.thought
		switch {
		case w.ReasoningContent != "": // some servers send both fields
			thought += w.ReasoningContent
		case w.Reasoning != "":
			thought += w.Reasoning
		}
		if thought != "" {
			out = append(out, model.Thought{Text: thought})
		}
		if probs := c.Logprobs.wire(); w.Content.text != "" || len(probs) > 0 {
			out = append(out, model.Text{Text: w.Content.text, Logprobs: probs})
		}
		if w.Refusal != "" {
			out = append(out, model.Refusal{Text: w.Refusal})
		}
		for i := range w.ToolCalls {
			out = a.calls.take(&w.ToolCalls[i], out)
		}
		// llama-cpp-python sends a call in both fields.
		a.listed = a.listed || len(w.ToolCalls) > 0
		if w.FunctionCall != nil && !a.listed {
			out = a.calls.take(&piece{Index: new(int), Function: *w.FunctionCall}, out)
		}
	}
	if c.FinishReason != "" {
		a.reason = c.FinishReason
		for _, stop := range []any{c.StopReason, c.MatchedStop} {
			if text, ok := stop.(string); ok {
				a.stop = text
			}
		}
	}
	return out
}

// Finish implements upstream.Answer. An answer without finish reason or end mark was
// cut off.
func (a *answer) Finish(out []model.Delta) ([]model.Delta, error) {
	f := model.Finish{Reason: model.FinishStop, Usage: a.usage, Model: a.model, ServiceTier: a.tier}
	switch a.reason {
	case "stop":
		f.Stop = a.stop
	case "tool_calls", "function_call":
	case "length", "max_tokens", "model_length":
		f.Reason = model.FinishLength
	case "content_filter", "safety", "sensitive":
		f.Reason = model.FinishContentFilter
	case "error", "abort", "insufficient_system_resource", "network_error":
		return out, fmt.Errorf("the upstream aborted its answer: %s", a.reason)
	case "":
		if !a.done {
			return out, io.ErrUnexpectedEOF
		}
	default:
		a.log.Debug("treated unknown finish_reason as stop", "reason", a.reason)
	}
	if f.Reason == model.FinishStop && a.calls.nameless() {
		return out, errors.New("the upstream sent a function call without a name")
	}
	return append(a.calls.end(a.calls.emitAll(out)), f), nil
}

// total converts usage to Responses.
func (u *usage) total() berth.Usage {
	out := berth.Usage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
		InputTokenDetails: berth.InputTokenDetails{CachedTokens: max(u.PromptDetails.CachedTokens,
			u.PromptCacheHitTokens)},
		OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: u.CompletionDetails.ReasoningTokens}}
	if out.TotalTokens == 0 {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	return out
}

// topLogprob is, like the result of wire, in the form of output text in Responses.
type topLogprob struct {
	Token   string  `json:"token"`
	Bytes   []int   `json:"bytes"`
	Logprob float64 `json:"logprob"`
}

// wire converts the probabilities to Responses, which has lists and never null.
func (l *logprobs) wire() []json.RawMessage {
	if l == nil {
		return nil
	}
	out := make([]json.RawMessage, 0, len(l.Content))
	for _, t := range l.Content {
		if t.TopLogprobs == nil {
			t.TopLogprobs = []topLogprob{}
		}
		for i := range t.TopLogprobs {
			t.TopLogprobs[i].fill()
		}
		t.fill()
		raw, _ := json.Marshal(t) // numbers decoded from JSON always marshal
		out = append(out, raw)
	}
	return out
}

// fill adds the token's bytes if the upstream omitted them.
func (t *topLogprob) fill() {
	if t.Bytes != nil {
		return
	}
	t.Bytes = []int{}
	for _, b := range []byte(t.Token) {
		t.Bytes = append(t.Bytes, int(b))
	}
}

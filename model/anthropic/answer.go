package anthropic

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"log/slog"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
	"github.com/berth-run/berth/model/upstream"
)

// maxEvent bounds one event, in bytes.
const maxEvent = 16 << 20

// An answer is what the model says in one turn, as it comes in.
type answer struct {
	log    *slog.Logger
	spoken string // the tool whose arguments are text

	begun       bool // an event of the dialect has come
	said        bool // words or calls
	id, model   string
	family      string
	reason      string
	explanation string // of a refusal
	done        bool
	usage       usage
	blocks      map[int]*openBlock
	calls       int
	ids         dialogue.NewIDs
}

// An openBlock is a content block that has begun.
type openBlock struct {
	kind    string
	call    int // of a tool_use
	thought thought
}

func newAnswer(req *model.Request, log *slog.Logger) *answer {
	return &answer{log: log, family: family(req.Model), blocks: map[int]*openBlock{}, ids: dialogue.NewIDs{Items: req.Items}}
}

// read yields what the answer says, and its Finish or an error.
func (a *answer) read(in io.Reader) iter.Seq2[model.Delta, error] {
	return upstream.Read(in, sse.NewReader(in, maxEvent).Data(), a, a.log)
}

// Begun implements upstream.Answer.
func (a *answer) Begun() bool { return a.begun }

// Ended implements upstream.Answer.
func (a *answer) Ended() bool { return a.reason != "" }

// Done implements upstream.Answer.
func (a *answer) Done() bool { return a.done }

// Take appends what an event says.
func (a *answer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	var ev event
	if err := upstream.Decode(data, &ev, &essential{}, a.log); err != nil {
		return out, err
	}
	a.begun = a.begun || strings.HasPrefix(ev.Type, "message_") || strings.HasPrefix(ev.Type, "content_block_")
	switch ev.Type {
	case "message_start":
		a.id, a.model, a.usage = ev.Message.ID, ev.Message.Model, ev.Message.Usage
	case "content_block_start":
		return a.begin(&ev, out)
	case "content_block_delta":
		if b := a.blocks[ev.Index]; b != nil {
			out = a.more(b, &ev, out)
		}
	case "content_block_stop":
		if b := a.blocks[ev.Index]; b != nil {
			out = a.end(b, out)
			delete(a.blocks, ev.Index)
		}
	case "message_delta":
		a.usage.update(&ev.Usage)
		if ev.Delta.StopReason != "" {
			a.reason, a.explanation = ev.Delta.StopReason, ev.Delta.StopDetails.Explanation
		}
	case "message_stop":
		a.done = true
	case "error":
		return out, &upstream.Refusal{Body: bytes.Clone(data)}
	}
	return out, nil
}

// begin opens a block and appends what it begins with.
func (a *answer) begin(ev *event, out []model.Delta) ([]model.Delta, error) {
	start := &ev.ContentBlock
	b := &openBlock{kind: start.Type}
	a.blocks[ev.Index] = b
	switch start.Type {
	case "text":
		out = a.text(start.Text, out)
	case "thinking":
		b.thought = thought{Of: a.id, Signature: start.Signature}
		out = b.think(start.Thinking, out)
	case "redacted_thinking":
		b.thought = thought{Of: a.id, Data: start.Data}
	case "tool_use":
		if start.Name == "" {
			return out, errors.New("the upstream called a function without naming it")
		}
		a.said = true
		if start.Name == a.spoken {
			b.kind = "spoken"
			break
		}
		b.call = a.calls
		a.calls++
		c := model.Call{Index: b.call, ID: a.ids.For(start.ID), Name: start.Name}
		if input := bytes.TrimSpace(start.Input); len(input) > 0 && !bytes.Equal(input, []byte("{}")) && !bytes.Equal(input, []byte("null")) {
			c.Arguments = string(input) // an imitator's, whole
		}
		out = append(out, c)
	default:
		a.log.Debug("a content block of a type that was not asked for is left out", "type", start.Type)
	}
	return out, nil
}

// more appends what is added to a block.
func (a *answer) more(b *openBlock, ev *event, out []model.Delta) []model.Delta {
	switch d := &ev.Delta; d.Type {
	case "text_delta":
		return a.text(d.Text, out)
	case "thinking_delta":
		return b.think(d.Thinking, out)
	case "signature_delta":
		b.thought.Signature += d.Signature
	case "input_json_delta":
		switch {
		case d.PartialJSON == "":
		case b.kind == "spoken":
			return append(out, model.Text{Text: d.PartialJSON})
		case b.kind == "tool_use":
			return append(out, model.Call{Index: b.call, Arguments: d.PartialJSON})
		}
	}
	return out
}

func (a *answer) text(text string, out []model.Delta) []model.Delta {
	if text == "" {
		return out
	}
	a.said = true
	return append(out, model.Text{Text: text})
}

func (b *openBlock) think(text string, out []model.Delta) []model.Delta {
	if text == "" {
		return out
	}
	b.thought.Thinking += text
	return append(out, model.Thought{Text: text, Summary: true})
}

// end closes a block. A thought becomes an item with what must come back of it.
func (a *answer) end(b *openBlock, out []model.Delta) []model.Delta {
	if b.thought.Signature == "" && b.thought.Data == "" {
		return out // an imitator's thought needs nothing
	}
	r := berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{}, EncryptedContent: dialogue.Seal(vendor, a.family, b.thought)}
	if text := b.thought.Thinking; text != "" {
		r.Summary = []berth.Content{{Type: "summary_text", Text: text}}
	}
	return append(out, model.Item{Item: berth.NewItem(r), Ends: len(r.Summary) > 0})
}

// declined is what a refusal says where the vendor gives no reason.
const declined = "The model's provider declined to answer this."

// Finish appends the Finish. An answer whose end nobody announced was cut off.
func (a *answer) Finish(out []model.Delta) ([]model.Delta, error) {
	f := model.Finish{Reason: model.FinishStop, Usage: a.usage.total(), Model: a.model}
	switch a.reason {
	case "end_turn", "tool_use", "stop_sequence":
	case "max_tokens", "model_context_window_exceeded":
		f.Reason = model.FinishLength
	case "refusal":
		if a.said { // and must not be shown to the model again
			f.Reason = model.FinishContentFilter
			break
		}
		if a.explanation == "" {
			a.explanation = declined
		}
		out = append(out, model.Refusal{Text: a.explanation})
	case "":
		return out, io.ErrUnexpectedEOF
	default: // pause_turn among them: only tools that the vendor runs make a pause
		a.log.Debug("an unknown stop_reason is taken for end_turn", "reason", a.reason)
	}
	return append(out, f), nil
}

// update takes what is said anew; all counts are cumulative.
func (u *usage) update(v *usage) {
	u.InputTokens = max(u.InputTokens, v.InputTokens)
	u.CacheCreation = max(u.CacheCreation, v.CacheCreation)
	u.CacheRead = max(u.CacheRead, v.CacheRead)
	u.OutputTokens = max(u.OutputTokens, v.OutputTokens)
	u.OutputDetails.ThinkingTokens = max(u.OutputDetails.ThinkingTokens, v.OutputDetails.ThinkingTokens)
}

// total puts usage into the words of Responses.
func (u *usage) total() berth.Usage {
	input := u.InputTokens + u.CacheCreation + u.CacheRead
	return berth.Usage{InputTokens: input, OutputTokens: u.OutputTokens, TotalTokens: input + u.OutputTokens,
		InputTokenDetails:  berth.InputTokenDetails{CachedTokens: u.CacheRead, CacheWriteTokens: u.CacheCreation},
		OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: u.OutputDetails.ThinkingTokens}}
}

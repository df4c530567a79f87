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

// An answer decodes one answer of the model.
type answer struct {
	log      *slog.Logger
	textTool string // the tool whose arguments are text
	vendor   vendorTools

	started     bool // an event of the dialect has arrived
	hasOutput   bool // text or calls have been emitted
	id, model   string
	family      string
	reason      string
	stop        string // the stop sequence, if the reason is that
	explanation string // of a refusal
	done        bool
	usage       usage
	blocks      map[int]*openBlock
	calls       int
	ids         dialogue.NewIDs
}

// kindText is the kind of a call whose arguments are the answer's text.
const kindText = "text tool"

// An openBlock is a content block that has started but not ended.
type openBlock struct {
	kind    string
	call    int          // of a tool_use
	input   *inputReader // of a call of Anthropic's tool that is translated, or nil
	thought thought
}

func newAnswer(req *model.Request, sent *request, log *slog.Logger) *answer {
	return &answer{log: log, textTool: sent.textTool, vendor: sent.vendor, family: family(req.Model),
		blocks: map[int]*openBlock{}, ids: dialogue.NewIDs{Items: req.Items}}
}

// Events implements upstream.Answer.
func (a *answer) Events(in io.Reader) iter.Seq2[[]byte, error] {
	return sse.NewReader(in, maxEvent).Data()
}

// Progress implements upstream.Answer.
func (a *answer) Progress() upstream.Progress {
	return upstream.Progress{Started: a.started, Ended: a.reason != "", Done: a.done}
}

// Take implements upstream.Answer.
func (a *answer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	var ev event
	if err := upstream.Decode(data, &ev, &essential{}, a.log); err != nil {
		return out, err
	}
	a.started = a.started || strings.HasPrefix(ev.Type, "message_") || strings.HasPrefix(ev.Type, "content_block_")
	switch ev.Type {
	case "message_start":
		a.id, a.model, a.usage = ev.Message.ID, ev.Message.Model, ev.Message.Usage
	case "content_block_start":
		return a.start(&ev, out)
	case "content_block_delta":
		if b := a.blocks[ev.Index]; b != nil {
			out = a.extend(b, &ev, out)
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
			a.stop = ev.Delta.StopSequence
		}
	case "message_stop":
		a.done = true
	case "error":
		return out, &upstream.Refusal{Body: bytes.Clone(data)}
	}
	return out, nil
}

// start opens a block and appends its initial content.
func (a *answer) start(ev *event, out []model.Delta) ([]model.Delta, error) {
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
			return out, errors.New("the upstream sent a function call without a name")
		}
		a.hasOutput = true
		if start.Name == a.textTool {
			b.kind = kindText
			break
		}
		b.call = a.calls
		a.calls++
		name, translated := a.vendor.function(start.Name)
		if translated {
			b.input = &inputReader{tool: start.Name, one: name == berth.ToolComputerPreview}
		}
		c := model.Call{Index: b.call, ID: a.ids.For(start.ID), Name: name}
		if input := bytes.TrimSpace(start.Input); len(input) > 0 && !bytes.Equal(input, []byte("{}")) &&
			!bytes.Equal(input, []byte("null")) {
			c.Arguments = b.arguments(string(input)) // compatible servers may send it whole
		}
		out = append(out, c)
	default:
		a.log.Debug("dropped content block of unexpected type", "type", start.Type)
	}
	return out, nil
}

// extend appends the deltas of an event within a block.
func (a *answer) extend(b *openBlock, ev *event, out []model.Delta) []model.Delta {
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
		case b.kind == kindText:
			return append(out, model.Text{Text: d.PartialJSON})
		case b.kind == "tool_use":
			if arguments := b.arguments(d.PartialJSON); arguments != "" {
				return append(out, model.Call{Index: b.call, Arguments: arguments})
			}
		}
	}
	return out
}

// arguments returns the arguments of the function for the next piece of a call's input.
func (b *openBlock) arguments(input string) string {
	if b.input == nil {
		return input
	}
	return b.input.write(input)
}

func (a *answer) text(text string, out []model.Delta) []model.Delta {
	if text == "" {
		return out
	}
	a.hasOutput = true
	return append(out, model.Text{Text: text})
}

func (b *openBlock) think(text string, out []model.Delta) []model.Delta {
	if text == "" {
		return out
	}
	b.thought.Thinking += text
	return append(out, model.Thought{Text: text, Summary: true})
}

// end closes a block. A thought becomes an item with the data needed to send it back.
func (a *answer) end(b *openBlock, out []model.Delta) []model.Delta {
	if b.input != nil {
		if rest := b.input.end(); rest != "" {
			out = append(out, model.Call{Index: b.call, Arguments: rest})
		}
		return out
	}
	if b.thought.Signature == "" && b.thought.Data == "" {
		return out // a compatible server's thought needs no data
	}
	r := berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{}, EncryptedContent: dialogue.Seal(vendor,
		a.family, b.thought)}
	if text := b.thought.Thinking; text != "" {
		r.Summary = []berth.Content{{Type: "summary_text", Text: text}}
	}
	return append(out, model.Item{Item: berth.NewItem(r), Ends: len(r.Summary) > 0})
}

// declined is the text of a refusal for which the vendor gives no reason.
const declined = "The model's provider declined to answer this."

// Finish implements upstream.Answer. An answer without stop reason was cut off.
func (a *answer) Finish(out []model.Delta) ([]model.Delta, error) {
	f := model.Finish{Reason: model.FinishStop, Usage: a.usage.total(), Model: a.model}
	switch a.reason {
	case "end_turn", "tool_use":
	case "stop_sequence":
		f.Stop = a.stop
	case "max_tokens", "model_context_window_exceeded":
		f.Reason = model.FinishLength
	case "refusal":
		if a.hasOutput { // this answer must not be sent to the model again
			f.Reason = model.FinishContentFilter
			break
		}
		if a.explanation == "" {
			a.explanation = declined
		}
		out = append(out, model.Refusal{Text: a.explanation})
	case "":
		return out, io.ErrUnexpectedEOF
	default: // also pause_turn, which only the vendor's own tools cause
		a.log.Debug("treated unknown stop_reason as end_turn", "reason", a.reason)
	}
	return append(out, f), nil
}

// update merges newer counts. All counts are cumulative.
func (u *usage) update(v *usage) {
	u.InputTokens = max(u.InputTokens, v.InputTokens)
	u.CacheCreation = max(u.CacheCreation, v.CacheCreation)
	u.CacheRead = max(u.CacheRead, v.CacheRead)
	u.OutputTokens = max(u.OutputTokens, v.OutputTokens)
	u.OutputDetails.ThinkingTokens = max(u.OutputDetails.ThinkingTokens, v.OutputDetails.ThinkingTokens)
}

// total converts usage to Responses.
func (u *usage) total() berth.Usage {
	input := u.InputTokens + u.CacheCreation + u.CacheRead
	return berth.Usage{InputTokens: input, OutputTokens: u.OutputTokens, TotalTokens: input + u.OutputTokens,
		InputTokenDetails:  berth.InputTokenDetails{CachedTokens: u.CacheRead, CacheWriteTokens: u.CacheCreation},
		OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: u.OutputDetails.ThinkingTokens}}
}

package chat

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/tool"
)

// A completionChoice is one answer of a completion: what it shows of the events of
// the response that gives it. It is used by one goroutine at a time.
type completionChoice struct {
	index     int
	response  berth.ResponseID
	asked     *completionRequest
	hosted    bool // there are tools that run on this server
	container berth.ContainerID

	pieces  []*choicePiece
	turn    int    // see choicePiece
	phase   string // of the last message
	begun   bool   // the first chunk has been made
	acted   bool   // a tool has run on this server
	finish  string
	usage   berth.Usage
	tier    string            // as its response says in the end
	scores  json.RawMessage   // likewise its moderation; nil if there is none
	failure *berth.EventError // why the response is about to fail
}

// A choicePiece is what one item of the output adds to a choice.
type choicePiece struct {
	kind      pieceKind
	item      int
	turn      int             // those of different turns have calls of hosted tools, or another phase, between them
	words     strings.Builder // of a call, its arguments
	logprobs  []json.RawMessage
	citations []citation
	call      completionCall // without its arguments
	cut       bool           // the item was closed as incomplete
}

type pieceKind int

const (
	pieceText pieceKind = iota
	pieceRefusal
	pieceThought
	pieceCall
)

// newCompletionChoice returns the choice that a response gives, which shows its
// tools as they were settled.
func newCompletionChoice(index int, asked *completionRequest, r *berth.Response, tools *tool.Registry) *completionChoice {
	c := &completionChoice{index: index, response: r.ID, asked: asked}
	for _, t := range r.Tools {
		if t.Type() == berth.ToolFunction || t.Type() == berth.ToolCustom {
			continue
		}
		c.hosted = true
		if id := tools.ContainerOf(t); id != "" {
			c.container = id
		}
	}
	return c
}

// lastOnly reports whether only the last of the model's messages counts: JSON must not be
// mixed with what the model says before it calls a hosted tool.
func (c *completionChoice) lastOnly() bool {
	var format struct{ Type string }
	_ = json.Unmarshal(c.asked.ResponseFormat, &format) // absent, or checked
	return c.hosted && format.Type != "" && format.Type != "text"
}

// live reports whether words are sent as they arrive, and cannot be withdrawn.
func (c *completionChoice) live() bool { return c.asked.Stream && !c.lastOnly() }

// errUnsaid ends a stream when words that it has sent are withdrawn.
var errUnsaid = &berth.Error{Code: berth.CodeUpstream,
	Message: "The upstream disconnected in the middle of its answer. A chat stream cannot be restarted; send the request again."}

// take adds an event and returns its chunks. Its errors are for the client.
func (c *completionChoice) take(ev *berth.Event) ([]chunkChoice, error) {
	switch ev.Type {
	case berth.EventOutputItemAdded:
		return c.add(ev)
	case berth.EventOutputTextDelta:
		return c.hear(pieceText, ev), nil
	case berth.EventRefusalDelta:
		return c.hear(pieceRefusal, ev), nil
	case berth.EventReasoningTextDelta, berth.EventReasoningSummaryDelta:
		if c.asked.IncludeReasoning {
			return c.hear(pieceThought, ev), nil
		}
	case berth.EventFunctionArgumentsDelta, berth.EventCustomInputDelta:
		return c.write(ev), nil
	case berth.EventOutputItemDone:
		return c.close(ev)
	case berth.EventErrored:
		c.failure = ev.Error
	case berth.EventCompleted, berth.EventIncomplete:
		return c.end(ev.Response), nil
	case berth.EventFailed:
		return nil, exchange.EventError(c.failure)
	case berth.EventCancelled:
		return nil, berth.Errorf(berth.CodeUnavailable, "The completion was cancelled.")
	}
	return nil, nil
}

// add starts an item. What was cut before it is withdrawn, because the model was asked
// again.
func (c *completionChoice) add(ev *berth.Event) ([]chunkChoice, error) {
	for _, p := range c.pieces {
		if sent := p.kind == pieceCall || p.words.Len() > 0; p.cut && sent && c.live() {
			return nil, errUnsaid
		}
	}
	c.pieces = slices.DeleteFunc(c.pieces, func(p *choicePiece) bool { return p.cut })
	switch ev.Item.Type() {
	case berth.ItemMessage:
		var m struct{ Phase string }
		if err := ev.Item.Decode(&m); err != nil {
			return nil, err
		}
		if m.Phase != c.phase {
			c.phase = m.Phase
			c.turn++
		}
		return nil, nil
	case berth.ItemReasoning:
		return nil, nil
	case berth.ItemFunctionCall, berth.ItemCustomToolCall:
		if c.asked.legacy() && len(c.calls()) > 0 {
			return nil, nil // a message has room for one
		}
		var named struct{ Name string }
		if err := ev.Item.Decode(&named); err != nil {
			return nil, err
		}
		p := c.piece(pieceCall, *ev.OutputIndex)
		p.call = completionCall{ID: ev.Item.CallID()}
		if ev.Item.Type() == berth.ItemFunctionCall {
			p.call.Type, p.call.Function = berth.ToolFunction, &calledFunction{Name: named.Name}
		} else {
			p.call.Type, p.call.Custom = berth.ToolCustom, &calledCustom{Name: named.Name}
		}
		return c.ifLive(c.callDelta(p, true, ""), nil), nil
	}
	c.turn++ // a tool's call or output, which the client does not see
	c.acted = true
	return nil, nil
}

// piece returns the piece of a kind that an item has, a new one if it has none.
func (c *completionChoice) piece(kind pieceKind, item int) *choicePiece {
	for _, p := range slices.Backward(c.pieces) {
		if p.kind == kind && p.item == item {
			return p
		}
	}
	p := &choicePiece{kind: kind, item: item, turn: c.turn}
	c.pieces = append(c.pieces, p)
	return p
}

// hear adds the words of an event.
func (c *completionChoice) hear(kind pieceKind, ev *berth.Event) []chunkChoice {
	var words string
	var logprobs []json.RawMessage
	_ = json.Unmarshal(ev.Delta, &words) // the engine's, a string
	if ev.Logprobs != nil {
		logprobs = *ev.Logprobs
	}
	return c.say(c.piece(kind, *ev.OutputIndex), words, logprobs)
}

// say adds words of a message, or of a thought.
func (c *completionChoice) say(p *choicePiece, words string, logprobs []json.RawMessage) []chunkChoice {
	if !c.asked.Logprobs {
		logprobs = nil
	}
	gap := ""
	if p.words.Len() == 0 && words != "" {
		gap = c.gap(p)
	}
	p.words.WriteString(words)
	p.logprobs = append(p.logprobs, logprobs...)
	if words == "" && len(logprobs) == 0 {
		return nil
	}
	return c.ifLive(wordsDelta(p.kind, gap+words), logprobs)
}

// gap is what separates a piece from the one before it: nothing within a turn.
func (c *completionChoice) gap(p *choicePiece) string {
	before := c.pieces[:slices.Index(c.pieces, p)]
	for _, b := range slices.Backward(before) {
		if b.kind == p.kind && b.words.Len() > 0 {
			if b.turn != p.turn {
				return "\n\n"
			}
			return ""
		}
	}
	return ""
}

// write adds to the arguments or the input of a call.
func (c *completionChoice) write(ev *berth.Event) []chunkChoice {
	i := slices.IndexFunc(c.pieces, func(p *choicePiece) bool { return p.kind == pieceCall && p.item == *ev.OutputIndex })
	if i < 0 {
		return nil // it was left out
	}
	var words string
	_ = json.Unmarshal(ev.Delta, &words) // the engine's, a string
	c.pieces[i].words.WriteString(words)
	return c.ifLive(c.callDelta(c.pieces[i], false, words), nil)
}

// close ends an item. It may have been cut; a message may have arrived without
// deltas; its text may cite something.
func (c *completionChoice) close(ev *berth.Event) (chunks []chunkChoice, err error) {
	silent := true
	for _, p := range c.pieces {
		if p.item == *ev.OutputIndex {
			p.cut, silent = ev.Item.Status() == berth.StatusIncomplete, false
		}
	}
	if ev.Item.Type() != berth.ItemMessage {
		return nil, nil
	}
	var m berth.Message
	if err := ev.Item.Decode(&m); err != nil {
		return nil, err
	}
	offset := 0
	for _, part := range m.Content {
		if silent && part.Text != "" {
			chunks = append(chunks, c.say(c.piece(pieceText, *ev.OutputIndex), part.Text, part.Logprobs)...)
		}
		if silent && part.Refusal != "" {
			chunks = append(chunks, c.say(c.piece(pieceRefusal, *ev.OutputIndex), part.Refusal, nil)...)
		}
		for _, raw := range part.Annotations {
			var cited citation
			if json.Unmarshal(raw, &cited) == nil && cited.Type == "url_citation" {
				cited.Start += offset
				cited.End += offset
				p := c.piece(pieceText, *ev.OutputIndex)
				p.citations = append(p.citations, cited)
			}
		}
		offset += utf8.RuneCountInString(part.Text)
	}
	return chunks, nil
}

// end records why the choice ends, and returns its last chunks.
func (c *completionChoice) end(r *berth.Response) []chunkChoice {
	if r.Usage != nil {
		c.usage = *r.Usage
	}
	c.tier, c.scores = r.ServiceTier, r.Moderation
	if c.lastOnly() {
		c.keepLast()
	}
	switch {
	case r.IncompleteDetails != nil && r.IncompleteDetails.Reason == "content_filter":
		c.finish = "content_filter"
	case r.IncompleteDetails != nil:
		c.finish = "length"
	case len(c.calls()) == 0, c.asked.forced(): // OpenAI says "stop" after a call that was forced by name
		c.finish = "stop"
	case c.asked.legacy():
		c.finish = "function_call"
	default:
		c.finish = "tool_calls"
	}
	if !c.asked.Stream {
		return nil
	}
	return c.endChunks()
}

// keepLast drops the words of all messages but the last.
func (c *completionChoice) keepLast() {
	last := -1
	for _, p := range c.pieces {
		if p.kind == pieceText || p.kind == pieceRefusal {
			last = max(last, p.item)
		}
	}
	c.pieces = slices.DeleteFunc(c.pieces, func(p *choicePiece) bool {
		return (p.kind == pieceText || p.kind == pieceRefusal) && p.item != last
	})
}

// calls returns the calls that the client is asked to answer.
func (c *completionChoice) calls() []*choicePiece {
	return slices.DeleteFunc(slices.Clone(c.pieces), func(p *choicePiece) bool { return p.kind != pieceCall })
}

// text returns all words of a kind.
func (c *completionChoice) text(kind pieceKind) string {
	var b strings.Builder
	for _, p := range c.pieces {
		if p.kind == kind && p.words.Len() > 0 {
			b.WriteString(c.gap(p))
			b.WriteString(p.words.String())
		}
	}
	return b.String()
}

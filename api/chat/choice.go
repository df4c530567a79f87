package chat

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/tool"
)

// A completionChoice is one choice of a completion, built from the events of its response.
// It is not safe for concurrent use.
type completionChoice struct {
	index     int
	response  berth.ResponseID
	request   *completionRequest
	hosted    bool // some tools run on this server
	container berth.ContainerID

	pieces  []*choicePiece
	turn    int    // see choicePiece
	phase   string // of the last message
	started bool   // the first chunk has been made
	acted   bool   // a tool has run on this server
	finish  string // the finish reason; "" until the end
	usage   berth.Usage
	tier    string            // the service tier of the final response
	scores  json.RawMessage   // the moderation of the final response; nil if absent
	failure *berth.EventError // the error event of a response that fails
}

// A choicePiece is the part of a choice that comes from one item of the output.
type choicePiece struct {
	kind      pieceKind
	item      int
	turn      int             // increases with each call of a hosted tool and each change of phase
	words     strings.Builder // the text, or the arguments of a call
	logprobs  []json.RawMessage
	citations []citation
	call      completionCall // without its arguments
	cut       bool           // the item ended as incomplete
}

type pieceKind int

const (
	pieceText pieceKind = iota
	pieceRefusal
	pieceThought
	pieceCall
)

// newCompletionChoice returns the choice of a response. The tools of r must be final.
func newCompletionChoice(index int, request *completionRequest, r *berth.Response,
	tools *tool.Registry) *completionChoice {
	c := &completionChoice{index: index, response: r.ID, request: request}
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

// lastOnly reports whether only the model's last message is part of the choice: an answer in
// JSON must not contain messages from before calls of hosted tools.
func (c *completionChoice) lastOnly() bool {
	var format struct{ Type string }
	_ = json.Unmarshal(c.request.ResponseFormat, &format) // absent or valid
	return c.hosted && format.Type != "" && format.Type != "text"
}

// live reports whether text is sent as it arrives. It cannot be withdrawn then.
func (c *completionChoice) live() bool { return c.request.Stream && !c.lastOnly() }

// errUnsaid ends a stream if text that was already sent is withdrawn.
var errUnsaid = &berth.Error{Code: berth.CodeUpstream,
	Message: "The upstream disconnected in the middle of its answer. A chat stream cannot be restarted; send the request again."}

// applyAll adds events and returns their chunks. With an error, these are the chunks of the
// events before it.
func (c *completionChoice) applyAll(events []journal.Event) (chunks []chunkChoice, err error) {
	for _, stored := range events {
		if !applied[stored.Type] {
			continue // not decoded either: some have the whole response
		}
		ev, err := berth.DecodeEvent(stored.Data)
		if err != nil {
			return chunks, err
		}
		more, err := c.apply(&ev)
		if err != nil {
			return chunks, err
		}
		chunks = append(chunks, more...)
	}
	return chunks, nil
}

// applied are the types of the events that apply uses.
var applied = map[berth.EventType]bool{
	berth.EventOutputItemAdded: true, berth.EventOutputItemDone: true,
	berth.EventOutputTextDelta: true, berth.EventRefusalDelta: true,
	berth.EventReasoningTextDelta: true, berth.EventReasoningSummaryDelta: true,
	berth.EventFunctionArgumentsDelta: true, berth.EventCustomInputDelta: true,
	berth.EventErrored: true, berth.EventCompleted: true, berth.EventIncomplete: true,
	berth.EventFailed: true, berth.EventCancelled: true,
}

// apply adds an event and returns its chunks. Its errors are for the client.
func (c *completionChoice) apply(ev *berth.Event) ([]chunkChoice, error) {
	switch ev.Type {
	case berth.EventOutputItemAdded:
		return c.add(ev)
	case berth.EventOutputTextDelta:
		return c.addDelta(pieceText, ev), nil
	case berth.EventRefusalDelta:
		return c.addDelta(pieceRefusal, ev), nil
	case berth.EventReasoningTextDelta, berth.EventReasoningSummaryDelta:
		if c.request.IncludeReasoning {
			return c.addDelta(pieceThought, ev), nil
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

// add starts an item. It withdraws incomplete pieces before it, because the turn is
// repeated.
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
		if c.request.legacy() && len(c.calls()) > 0 {
			return nil, nil // a message can contain only one function_call
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
	c.turn++ // a call of a hosted tool or its output, which the client does not get
	c.acted = true
	return nil, nil
}

// piece returns an item's piece of a kind. It adds one if there is none.
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

// addDelta adds the text of a delta event.
func (c *completionChoice) addDelta(kind pieceKind, ev *berth.Event) []chunkChoice {
	var words string
	var logprobs []json.RawMessage
	_ = json.Unmarshal(ev.Delta, &words) // always a string
	if ev.Logprobs != nil {
		logprobs = *ev.Logprobs
	}
	return c.addText(c.piece(kind, *ev.OutputIndex), words, logprobs)
}

// addText adds text of a message or of reasoning.
func (c *completionChoice) addText(p *choicePiece, words string, logprobs []json.RawMessage) []chunkChoice {
	if !c.request.Logprobs {
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

// gap returns the separator between a piece and the one before it: a blank line between
// turns, nothing within a turn.
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
	i := slices.IndexFunc(c.pieces, func(p *choicePiece) bool {
		return p.kind == pieceCall && p.item == *ev.OutputIndex
	})
	if i < 0 {
		return nil // add has skipped the call
	}
	var words string
	_ = json.Unmarshal(ev.Delta, &words) // always a string
	c.pieces[i].words.WriteString(words)
	return c.ifLive(c.callDelta(c.pieces[i], false, words), nil)
}

// close ends an item. It marks the pieces of an incomplete item as cut, adds the text of a
// message without deltas, and records the citations of its text.
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
			chunks = append(chunks, c.addText(c.piece(pieceText, *ev.OutputIndex), part.Text, part.Logprobs)...)
		}
		if silent && part.Refusal != "" {
			chunks = append(chunks, c.addText(c.piece(pieceRefusal, *ev.OutputIndex), part.Refusal, nil)...)
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

// end sets the finish reason and returns the last chunks.
func (c *completionChoice) end(r *berth.Response) []chunkChoice {
	if r.Usage != nil {
		c.usage = *r.Usage
	}
	c.tier, c.scores = r.ServiceTier, r.Moderation
	if c.lastOnly() {
		c.dropEarlier()
	}
	switch {
	case r.IncompleteDetails != nil && r.IncompleteDetails.Reason == "content_filter":
		c.finish = "content_filter"
	case r.IncompleteDetails != nil:
		c.finish = "length"
	case len(c.calls()) == 0, c.request.forced(): // OpenAI sends "stop" after a call that was forced by name
		c.finish = "stop"
	case c.request.legacy():
		c.finish = "function_call"
	default:
		c.finish = "tool_calls"
	}
	if !c.request.Stream {
		return nil
	}
	return c.endChunks()
}

// dropEarlier drops the text of all messages except the last.
func (c *completionChoice) dropEarlier() {
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

// calls returns the calls of the client's tools.
func (c *completionChoice) calls() []*choicePiece {
	return slices.DeleteFunc(slices.Clone(c.pieces), func(p *choicePiece) bool { return p.kind != pieceCall })
}

// text returns the whole text of a kind.
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

package messages

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/tool"
)

// An answer is a message built from the events of its response. It is not safe for concurrent use.
type answer struct {
	request   *messageRequest
	response  berth.ResponseID
	container berth.ContainerID // of server tools; "" if there is none

	blocks []*outputBlock
	acted  bool              // a tool has run on this server
	pages  map[string]string // the texts of pages that searches found, by URL
	web    serverToolUsage

	failure  *berth.EventError // the error event of a response that fails
	refusal  string
	ended    bool
	stop     string  // the reason; "" until the end
	sequence *string // that ended the answer
	usage    berth.Usage
	calls    []iterationUsage // of the model, if there were several
	tier     string

	searches []string // of servedItem, as the next two
	programs map[string]string
	outputs  func() map[string]berth.FileID
	summary  func(berth.Item) (string, error)

	next    int // number of blocks that a stream has sent completely
	started bool
}

// An outputBlock is one block of a message.
type outputBlock struct {
	item   int // its place in the output of the response
	kind   blockKind
	id     string // of a call
	name   string
	caller *caller
	text   strings.Builder // the text, the thought, or the input of a call
	sign   string          // the signature of a thought, or its redacted data
	cites  []any
	body   any   // a block that is complete from its start
	deltas []any // that a stream has not sent

	opened, done, cut bool
}

type blockKind int

const (
	kindText blockKind = iota
	kindThought
	kindRedacted
	kindCall
	kindServerCall // a body, whose input a stream sends as a delta
	kindResult
	kindCompaction // a body, which a stream sends as a delta
)

// newAnswer returns the answer to a request. The tools of r must be final.
func newAnswer(req *messageRequest, r *berth.Response, tools *tool.Registry) *answer {
	a := &answer{request: req, response: r.ID, pages: map[string]string{}, programs: map[string]string{}}
	for _, of := range r.Tools {
		if id := tools.ContainerOf(of); id != "" {
			a.container = id
		}
	}
	return a
}

// errUnsaid ends a stream if text that was already sent is withdrawn.
var errUnsaid = &berth.Error{Code: berth.CodeUpstream,
	Message: "The upstream disconnected in the middle of its answer. A stream cannot be restarted; send the request again."}

// applied are the types of the events that apply uses.
var applied = map[berth.EventType]bool{
	berth.EventOutputItemAdded: true, berth.EventOutputItemDone: true,
	berth.EventOutputTextDelta: true, berth.EventRefusalDelta: true, berth.EventAnnotationAdded: true,
	berth.EventReasoningTextDelta: true, berth.EventReasoningSummaryDelta: true,
	berth.EventFunctionArgumentsDelta: true,
	berth.EventErrored:                true, berth.EventCompleted: true, berth.EventIncomplete: true,
	berth.EventFailed: true, berth.EventCancelled: true,
}

// applyAll adds events. Its errors are for the client.
func (a *answer) applyAll(events []journal.Event) error {
	for _, stored := range events {
		if !applied[stored.Type] {
			continue // not decoded either: some have the whole response
		}
		ev, err := berth.DecodeEvent(stored.Data)
		if err != nil {
			return err
		}
		if err := a.apply(&ev); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) apply(ev *berth.Event) error {
	switch ev.Type {
	case berth.EventOutputItemAdded:
		return a.add(ev)
	case berth.EventOutputTextDelta, berth.EventRefusalDelta:
		text, _ := ev.DeltaText()
		if ev.Type == berth.EventRefusalDelta {
			a.refusal += text
		}
		a.write(a.block(*ev.OutputIndex, kindText), text)
	case berth.EventAnnotationAdded:
		a.cite(*ev.OutputIndex, ev.Annotation)
	case berth.EventReasoningTextDelta, berth.EventReasoningSummaryDelta:
		if text, _ := ev.DeltaText(); a.shows() {
			a.write(a.block(*ev.OutputIndex, kindThought), text)
		}
	case berth.EventFunctionArgumentsDelta:
		text, _ := ev.DeltaText()
		a.write(a.block(*ev.OutputIndex, kindCall), text)
	case berth.EventOutputItemDone:
		return a.close(ev)
	case berth.EventErrored:
		a.failure = ev.Error
	case berth.EventCompleted, berth.EventIncomplete:
		a.end(ev.Response)
	case berth.EventFailed:
		return exchange.EventError(a.failure)
	case berth.EventCancelled:
		return berth.Errorf(berth.CodeUnavailable, "The message was cancelled.")
	}
	return nil
}

// shows reports whether the client gets the text of thoughts.
func (a *answer) shows() bool { return a.request.thinks() && a.request.Thinking.Display != "omitted" }

// add starts an item. It withdraws incomplete blocks before it, because the turn is repeated.
func (a *answer) add(ev *berth.Event) error {
	for _, b := range a.blocks {
		if b.cut && b.opened {
			return errUnsaid
		}
	}
	a.blocks = slices.DeleteFunc(a.blocks, func(b *outputBlock) bool { return b.cut })
	if ev.Item.Type() == berth.ItemFunctionCall {
		var named struct {
			Name   string
			Caller *berth.ToolCaller
		}
		if err := ev.Item.Decode(&named); err != nil {
			return err
		}
		b := a.block(*ev.OutputIndex, kindCall)
		b.id, b.name, b.caller = ev.Item.CallID(), named.Name, direct
		if c := named.Caller; c != nil && c.Type == berth.CallerProgram {
			b.caller = &caller{a.request.programCaller(), a.programs[c.CallerID]}
		}
	}
	return nil
}

// block returns the open block of an item. It adds one if there is none.
func (a *answer) block(item int, kind blockKind) *outputBlock {
	for _, b := range slices.Backward(a.blocks) {
		if b.item == item && b.kind == kind && !b.done {
			return b
		}
	}
	b := &outputBlock{item: item, kind: kind}
	a.blocks = append(a.blocks, b)
	return b
}

// write adds text to a block.
func (a *answer) write(b *outputBlock, text string) {
	if text == "" {
		return
	}
	b.text.WriteString(text)
	if !a.request.Stream {
		return
	}
	switch b.kind {
	case kindThought:
		b.deltas = append(b.deltas, thinkingDelta{"thinking_delta", text})
	case kindCall:
		b.deltas = append(b.deltas, inputDelta{"input_json_delta", text})
	default:
		b.deltas = append(b.deltas, textDelta{"text_delta", text})
	}
}

// close ends the blocks of an item, and adds those that an item has without deltas.
func (a *answer) close(ev *berth.Event) error {
	item := *ev.OutputIndex
	switch ev.Item.Type() {
	case berth.ItemMessage:
		if err := a.closeMessage(item, ev.Item); err != nil {
			return err
		}
	case berth.ItemReasoning:
		if err := a.closeThought(item, ev.Item); err != nil {
			return err
		}
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		if err := ev.Item.Decode(&c); err != nil {
			return err
		}
		if b := a.block(item, kindCall); b.text.Len() == 0 {
			a.write(b, c.Arguments)
		}
	default:
		a.acted = true
		if err := a.serve(item, *ev.Item); err != nil {
			return err
		}
	}
	for _, b := range a.blocks {
		if b.item == item {
			b.done, b.cut = true, ev.Item.Status() == berth.StatusIncomplete
		}
	}
	return nil
}

// serve adds the blocks of an item of a hosted tool. A stream sends the input of a call as one delta.
func (a *answer) serve(item int, it berth.Item) error {
	s := servedItem{request: a.request, searches: &a.searches, programs: a.programs, outputs: a.outputs,
		summary: a.summary}
	if err := s.read(it); err != nil {
		return err
	}
	maps.Copy(a.pages, s.pages)
	a.web.WebSearches += s.web.WebSearches
	a.web.WebFetches += s.web.WebFetches
	for _, body := range s.blocks {
		if text, ok := body.(textOutput); ok {
			a.write(a.block(item, kindText), text.Text)
			continue
		}
		b := &outputBlock{item: item, kind: kindResult, body: body}
		if c, ok := body.(compactionOutput); ok {
			b.kind = kindCompaction
			if a.request.Stream {
				b.deltas = []any{compactionDelta{"compaction_delta", c.Content, c.EncryptedContent}}
			}
		}
		if c, ok := body.(callOutput); ok {
			b.kind = kindServerCall
			if a.request.Stream {
				b.deltas = []any{inputDelta{"input_json_delta", string(c.Input)}}
			}
		}
		a.blocks = append(a.blocks, b)
	}
	return nil
}

// closeMessage adds the text of a message that had no deltas.
func (a *answer) closeMessage(item int, it *berth.Item) error {
	if slices.ContainsFunc(a.blocks, func(b *outputBlock) bool { return b.item == item }) {
		return nil
	}
	var m berth.Message
	if err := it.Decode(&m); err != nil {
		return err
	}
	for _, part := range m.Content {
		a.refusal += part.Refusal
		if text := part.Text + part.Refusal; text != "" {
			a.write(a.block(item, kindText), text)
		}
		for _, raw := range part.Annotations {
			a.cite(item, raw)
		}
	}
	return nil
}

// closeThought signs a thought, or adds one without text.
func (a *answer) closeThought(item int, it *berth.Item) error {
	if !a.request.thinks() {
		return nil
	}
	var r berth.Reasoning
	if err := it.Decode(&r); err != nil {
		return err
	}
	has := slices.ContainsFunc(a.blocks, func(b *outputBlock) bool { return b.item == item })
	sign := signature(&r)
	if !has && len(r.Summary)+len(r.Content) == 0 {
		if r.EncryptedContent != "" {
			a.block(item, kindRedacted).sign = sign
		}
		return nil
	}
	b := a.block(item, kindThought)
	if !has && a.shows() {
		for _, part := range slices.Concat(r.Summary, r.Content) {
			a.write(b, part.Text)
		}
	}
	b.sign = sign
	if a.request.Stream {
		b.deltas = append(b.deltas, signatureDelta{"signature_delta", sign})
	}
	return nil
}

// cite adds the citation of a web page to the text of an item.
func (a *answer) cite(item int, annotation json.RawMessage) {
	var c berth.URLCitation
	if json.Unmarshal(annotation, &c) != nil || c.Type != "url_citation" {
		return
	}
	b := a.block(item, kindText)
	cited := webCitation{Type: "web_search_result_location", CitedText: rule.Clip(a.pages[c.URL]), URL: c.URL,
		Title: c.Title, EncryptedIndex: sealText(c.URL)}
	b.cites = append(b.cites, cited)
	if a.request.Stream {
		b.deltas = append(b.deltas, citationsDelta{"citations_delta", cited})
	}
}

// end sets the stop reason.
func (a *answer) end(r *berth.Response) {
	a.ended, a.tier = true, "standard"
	a.usage, a.calls = usageOf(a.request.Model, r)
	if r.ServiceTier == "priority" {
		a.tier = "priority"
	}
	for _, b := range a.blocks {
		b.done = true
	}
	calls := slices.ContainsFunc(a.blocks, func(b *outputBlock) bool { return b.kind == kindCall })
	cause := r.IncompleteDetails
	switch {
	case cause != nil && cause.Reason == "max_output_tokens":
		a.stop = "max_tokens"
	case cause != nil && cause.Reason == "content_filter":
		a.stop = "refusal"
	case cause != nil && cause.Reason == berth.ReasonCompaction:
		a.stop = "compaction"
	case cause != nil: // a limit of this server, after which a new request can continue
		a.stop = "pause_turn"
	case a.refusal != "":
		a.stop = "refusal"
	case calls:
		a.stop = "tool_use"
	case r.Berth != nil && r.Berth.StopSequence != "":
		a.stop, a.sequence = "stop_sequence", &r.Berth.StopSequence
	default:
		a.stop = "end_turn"
	}
}

// fail returns the client's error for a failed message. If tools have run on this server, it forbids the client's
// automatic retry, which would run them again.
func (a *answer) fail(h http.Header, err error) error {
	if a.acted {
		h.Set("x-should-retry", "false")
	}
	return err
}

// output returns a block as it is in a whole message, or as it starts in a stream.
func (b *outputBlock) output(whole bool) any {
	text := ""
	if whole {
		text = b.text.String()
	}
	switch b.kind {
	case kindText:
		if whole {
			return textOutput{"text", text, b.cites}
		}
		return textOutput{Type: "text"}
	case kindThought:
		if whole {
			return thinkingOutput{"thinking", text, b.sign}
		}
		return thinkingOutput{Type: "thinking"}
	case kindRedacted:
		return redactedOutput{"redacted_thinking", b.sign}
	case kindCall:
		return callOutput{Type: "tool_use", ID: b.id, Name: b.name, Input: inputOf(text), Caller: b.caller}
	case kindCompaction:
		if !whole {
			return compactionOutput{Type: "compaction"}
		}
	case kindServerCall:
		c := b.body.(callOutput)
		if !whole {
			c.Input = json.RawMessage("{}")
		}
		return c
	}
	return b.body
}

// direct is the caller of all calls: the model.
var direct = &caller{Type: "direct"}

// inputOf returns the arguments of a call as an object. Arguments that are no object are a text in one, as
// Anthropic's documentation recommends.
func inputOf(arguments string) json.RawMessage {
	arguments = strings.TrimSpace(arguments)
	if arguments == "" {
		return json.RawMessage("{}")
	}
	if arguments[0] == '{' && json.Valid([]byte(arguments)) {
		return json.RawMessage(arguments)
	}
	raw, _ := json.Marshal(map[string]string{"INVALID_JSON": arguments}) // texts always marshal
	return raw
}

// head returns the message without its content and its end.
func (a *answer) head() wholeMessage {
	m := wholeMessage{ID: messageID(a.response), Type: "message", Role: "assistant", Model: a.request.Model,
		Content: []any{}, Usage: newUsage(a.usage)}
	tier := a.tier
	if tier == "" {
		tier = "standard"
	}
	m.Usage.Iterations = a.calls
	m.Usage.tierUsage = &tierUsage{ServiceTier: tier, CacheCreation: cacheCreation{Minutes: m.Usage.CacheCreation}}
	return m
}

// serverUse returns the number of calls of server tools, or nil.
func (a *answer) serverUse() *serverToolUsage {
	if a.web == (serverToolUsage{}) {
		return nil
	}
	return &a.web
}

// details say why the model declined, or are nil.
func (a *answer) details() *stopDetails {
	if a.stop != "refusal" {
		return nil
	}
	return &stopDetails{Type: "refusal", Explanation: exchange.OrNull(a.refusal)}
}

// context reports the edits of the request's context.
func (a *answer) context() *contextApplied {
	if a.request.ContextManagement == nil {
		return nil
	}
	applied := append([]any{}, a.request.applied...)
	return &contextApplied{AppliedEdits: &applied}
}

// expires returns when a container expires, if it is not used.
func expires(c *berth.Container) string {
	return time.Unix(c.LastActiveAt, 0).Add(time.Duration(c.ExpiresAfter.Minutes) * time.Minute).UTC().
		Format(time.RFC3339)
}

// messageID returns the id of the message of a response, in which operators recognise the response.
func messageID(id berth.ResponseID) string {
	return berth.PrefixMessage + strings.TrimPrefix(string(id), berth.PrefixResponse)
}

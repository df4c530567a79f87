package chat

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// interrupted stands in for an output that there is not: upstreams refuse a call
// without one.
const interrupted = "The call was interrupted; there is no output."

// messages turns items into messages. Upstreams insist on an order that items do
// not have: what a model said in one turn is one assistant message, its text
// together with its calls, and the outputs of those calls follow at once. An
// output, or anything that the model did not say, ends a turn.
func (p *Provider) messages(req *model.Request) ([]message, error) {
	b := &builder{opts: &p.opts, log: p.opts.Log, outputs: map[string][]int{}, orphan: map[int]bool{}, used: map[string]int{}, items: req.Items}
	b.pair()
	if req.Instructions != "" {
		b.system(p.opts.SystemRole, req.Instructions, "")
	}
	for i, it := range req.Items {
		if err := b.add(i, it); err != nil {
			return nil, err
		}
	}
	return b.out, b.endTurn()
}

type builder struct {
	opts  *Options
	log   *slog.Logger
	items []berth.Item
	out   []message

	outputs map[string][]int // of each call id, the places of the outputs not yet used
	orphan  map[int]bool     // the places of outputs that have no call
	used    map[string]int   // how many calls had this id

	turn    *message // the assistant's message, still growing
	answers []int    // of its calls, the places of the outputs; -1 is none
	thought string   // reasoning of the turn so far
	pending string   // reasoning that belongs to what comes next
}

// pair finds the output of each call. An id that occurs again, as some upstreams
// count from zero in every turn, pairs in order.
func (b *builder) pair() {
	calls := map[string]int{}
	for _, it := range b.items {
		if it.Type() == berth.ItemFunctionCall {
			calls[it.CallID()]++
		}
	}
	for i, it := range b.items {
		if it.Type() != berth.ItemFunctionCallOutput {
			continue
		}
		if id := it.CallID(); len(b.outputs[id]) < calls[id] {
			b.outputs[id] = append(b.outputs[id], i)
		} else {
			b.orphan[i] = true
		}
	}
}

func (b *builder) add(i int, it berth.Item) error {
	switch it.Type() {
	case berth.ItemMessage, "":
		var m berth.Message
		if err := it.Decode(&m); err != nil {
			return berth.Invalid("input", "Invalid message: %v.", err)
		}
		return b.message(m)
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		if err := it.Decode(&c); err != nil {
			return berth.Invalid("input", "Invalid function call: %v.", err)
		}
		b.call(c)
	case berth.ItemFunctionCallOutput:
		if err := b.endTurn(); err != nil || !b.orphan[i] {
			return err
		}
		return b.orphaned(i)
	case berth.ItemReasoning:
		b.reasoning(it)
	default:
		b.log.Debug("an item has no place in Chat Completions and is left out", "type", it.Type(), "id", it.ID())
	}
	return nil
}

func (b *builder) message(m berth.Message) error {
	if m.Role == "assistant" {
		b.say(said(m.Content), m.Name)
		return nil
	}
	if err := b.endTurn(); err != nil {
		return err
	}
	switch m.Role {
	case "developer":
		b.system(b.opts.SystemRole, text(m.Content), m.Name)
	case "system":
		b.system("system", text(m.Content), m.Name)
	default:
		content, err := b.content(m.Content)
		if err != nil {
			return err
		}
		b.out = append(b.out, message{Role: "user", Content: content, Name: m.Name})
	}
	return nil
}

// system adds a system message. Those at the start become one: the templates of
// many models take no second.
func (b *builder) system(role, text, name string) {
	if len(b.out) == 1 && b.out[0].Role == role && b.out[0].Name == name {
		b.out[0].Content = b.out[0].Content.(string) + "\n\n" + text
		return
	}
	b.out = append(b.out, message{Role: role, Content: text, Name: name})
}

// said is what an assistant's message says. A refusal is text as well: its own
// field is known to OpenAI only.
func said(content []berth.Content) string {
	var text strings.Builder
	for _, c := range content {
		text.WriteString(c.Text)
		text.WriteString(c.Refusal)
	}
	return text.String()
}

func (b *builder) say(text, name string) {
	if text == "" {
		return
	}
	m := b.openTurn()
	m.Name = cmp.Or(name, m.Name)
	if before, ok := m.Content.(string); ok {
		text = before + "\n\n" + text
	}
	m.Content = text
}

func (b *builder) openTurn() *message {
	if b.turn == nil {
		b.turn = &message{Role: "assistant"}
	}
	b.thought, b.pending = b.thought+b.pending, ""
	return b.turn
}

func (b *builder) call(c berth.FunctionCall) {
	m := b.openTurn()
	m.ToolCalls = append(m.ToolCalls, toolCall{ID: b.callID(c.CallID), Type: "function",
		Function: functionCall{Name: c.Name, Arguments: parseable(c.Arguments)}})
	place := -1
	if places := b.outputs[c.CallID]; len(places) > 0 {
		place, b.outputs[c.CallID] = places[0], places[1:]
	}
	b.answers = append(b.answers, place)
}

// callID returns the id under which the upstream sees a call: its own, unless that
// is too long or was there before.
func (b *builder) callID(id string) string {
	n := b.used[id]
	b.used[id]++
	if n == 0 && id != "" && len(id) <= b.opts.CallIDLength {
		return id
	}
	sum := sha256.Sum256([]byte(id + strings.Repeat("+", n)))
	digest := hex.EncodeToString(sum[:])
	return digest[:min(b.opts.CallIDLength, len(digest))]
}

// parseable returns what the model wrote as arguments, wrapped if it is no JSON
// object: vLLM, llama.cpp and Ollama parse it, and fail on what a model got wrong.
func parseable(arguments string) string {
	if arguments == "" {
		return "{}"
	}
	if isObject(json.RawMessage(arguments)) {
		return arguments
	}
	wrapped, _ := json.Marshal(map[string]string{"invalid": arguments}) // a string always marshals
	return string(wrapped)
}

// reasoning keeps what the model thought for its message, if the upstream wants it.
func (b *builder) reasoning(it berth.Item) {
	var r berth.Reasoning
	if b.opts.Reasoning == "" || it.Decode(&r) != nil {
		return
	}
	b.pending += text(r.Content)
}

// endTurn ends the assistant's message and answers its calls.
func (b *builder) endTurn() error {
	m, answers, thought := b.turn, b.answers, b.thought
	b.turn, b.answers, b.thought, b.pending = nil, nil, "", ""
	if m == nil {
		return nil
	}
	switch b.opts.Reasoning {
	case "reasoning_content":
		m.ReasoningContent = thought
	case "reasoning":
		m.Reasoning = thought
	}
	b.out = append(b.out, *m)
	var media []part
	for i, c := range m.ToolCalls {
		answer := message{Role: "tool", ToolCallID: c.ID, Content: interrupted}
		if place := answers[i]; place >= 0 {
			text, shown, err := b.output(place)
			if err != nil {
				return err
			}
			answer.Content = text
			media = append(media, shown...)
		} else {
			b.log.Debug("a call without output is told as interrupted", "call_id", c.ID)
		}
		b.out = append(b.out, answer)
	}
	if len(media) > 0 {
		b.out = append(b.out, message{Role: "user", Content: media})
	}
	return nil
}

// orphaned tells an output without its call as the user's words: as an output, it
// would be refused.
func (b *builder) orphaned(place int) error {
	id := b.items[place].CallID()
	b.log.Debug("an output without its call is told as the user's text", "call_id", id)
	text, media, err := b.output(place)
	if err != nil {
		return err
	}
	text = "The output of an earlier call, " + id + ", was:\n" + text
	m := message{Role: "user", Content: text}
	if len(media) > 0 {
		m.Content = append([]part{{Type: "text", Text: text}}, media...)
	}
	b.out = append(b.out, m)
	return nil
}

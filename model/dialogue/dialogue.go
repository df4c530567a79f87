// Package dialogue turns items into the turns of a dialogue, in the order that vendors
// require, and seals content that only one vendor understands.
package dialogue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/berth-run/berth"
)

// Interrupted replaces a missing output: vendors refuse a call without one.
const Interrupted = "The call was interrupted; there is no output."

// A Turn is everything that one side contributes before the other does.
type Turn struct {
	Role    string          // system, developer, user or assistant
	Name    string          // of the participant, if several share a role
	Content []berth.Content // unless the role is assistant
	Parts   []Part          // of the assistant, in order; the outputs of its calls follow immediately
}

// A Part is one thing in an assistant's turn: text, reasoning or a call.
type Part struct {
	Text      string
	Reasoning *berth.Reasoning
	Call      *Call
}

// A Call is a function call and its output.
type Call struct {
	ID        string
	Name      string          // of letters, digits, _ and -, at most 64
	Arguments json.RawMessage // always a JSON object
	Output    Output
}

// An Output is the output of a call.
type Output struct {
	Text    string          // if it is a plain string
	Content []berth.Content // if it has parts
	Missing bool            // there is no output; Text states so
}

// Read turns items into turns. Vendors require an order that items may lack: all parts
// of a model's turn together, text and calls, followed immediately by the outputs of these
// calls. An output, or any item not from the model, ends a turn. An output without its
// call becomes a user message. Items left out are logged.
func Read(items []berth.Item, log *slog.Logger) ([]Turn, error) {
	r := &reader{log: log, items: items, out: make([]Turn, 0, len(items)), pairs: Pair(items)}
	for i, it := range items {
		if err := r.add(i, it); err != nil {
			return nil, err
		}
	}
	r.endTurn()
	return r.out, nil
}

type reader struct {
	log   *slog.Logger
	items []berth.Item
	out   []Turn
	parts []Part // parts of the open turn
	name  string // of the open turn's participant

	pairs Pairs
}

// Pairs maps calls to their outputs and back, by index in the items.
type Pairs struct {
	OutputOf map[int]int // by the index of a call
	CallOf   map[int]int // by the index of an output
}

// Pair pairs calls with their outputs. Calls that share an id pair in order: some
// upstreams count ids from zero in every turn.
func Pair(items []berth.Item) Pairs {
	p := Pairs{OutputOf: map[int]int{}, CallOf: map[int]int{}}
	calls := map[string][]int{}
	for i, it := range items {
		if it.Type() == berth.ItemFunctionCall {
			calls[it.CallID()] = append(calls[it.CallID()], i)
		}
	}
	for i, it := range items {
		if it.Type() != berth.ItemFunctionCallOutput {
			continue
		}
		if waiting := calls[it.CallID()]; len(waiting) > 0 {
			p.OutputOf[waiting[0]], p.CallOf[i] = i, waiting[0]
			calls[it.CallID()] = waiting[1:]
		}
	}
	return p
}

func (r *reader) add(i int, it berth.Item) error {
	switch it.Type() {
	case berth.ItemMessage, "":
		return r.message(it)
	case berth.ItemFunctionCall:
		return r.call(i, it)
	case berth.ItemFunctionCallOutput:
		r.endTurn()
		if _, paired := r.pairs.CallOf[i]; !paired {
			return r.orphaned(it)
		}
	case berth.ItemReasoning:
		var thought berth.Reasoning
		if err := it.Decode(&thought); err != nil {
			return berth.Invalid("input", "Invalid reasoning: %v.", err)
		}
		r.parts = append(r.parts, Part{Reasoning: &thought})
	default:
		r.log.Debug("dropped item that the vendor's dialogue does not have", "type", it.Type(), "id", it.ID())
	}
	return nil
}

func (r *reader) message(it berth.Item) error {
	m := it.TextMessage()
	if m == nil {
		m = &berth.Message{}
		if err := it.Decode(m); err != nil {
			return berth.Invalid("input", "Invalid message: %v.", err)
		}
	}
	role := m.Role
	switch role {
	case "assistant":
		if text := assistantText(m.Content); text != "" {
			r.parts, r.name = append(r.parts, Part{Text: text}), cmp.Or(m.Name, r.name)
		}
		return nil
	case "system", "developer":
	default:
		role = "user"
	}
	r.endTurn()
	r.out = append(r.out, Turn{Role: role, Name: m.Name, Content: m.Content})
	return nil
}

// assistantText returns the text of an assistant's message. A refusal counts as text:
// vendors accept no refusals in their input.
func assistantText(content []berth.Content) string {
	if len(content) == 1 {
		return content[0].Text + content[0].Refusal
	}
	var text strings.Builder
	for _, c := range content {
		text.WriteString(c.Text)
		text.WriteString(c.Refusal)
	}
	return text.String()
}

func (r *reader) call(i int, it berth.Item) error {
	var c berth.FunctionCall
	if err := it.Decode(&c); err != nil {
		return berth.Invalid("input", "Invalid function call: %v.", err)
	}
	call := &Call{ID: c.CallID, Name: Name(c.Name), Arguments: object(c.Arguments),
		Output: Output{Text: Interrupted, Missing: true}}
	if place, ok := r.pairs.OutputOf[i]; ok {
		var err error
		if call.Output, err = output(r.items[place]); err != nil {
			return err
		}
	} else {
		r.log.Debug("marked call without output as interrupted", "call_id", c.CallID)
	}
	r.parts = append(r.parts, Part{Call: call})
	return nil
}

// Name returns s as a function name that every vendor accepts. It changes only names
// that a model made up.
func Name(s string) string {
	clean := []byte(s[:min(len(s), 64)])
	for i, c := range clean {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
		if !letter {
			clean[i] = '_'
		}
	}
	if len(clean) == 0 {
		return "unknown"
	}
	return string(clean)
}

// object returns a call's arguments, wrapped if they are not a JSON object. Most
// vendors parse them and fail on a model's mistakes.
func object(arguments string) json.RawMessage {
	if arguments == "" {
		return json.RawMessage("{}")
	}
	if IsObject(json.RawMessage(arguments)) {
		return json.RawMessage(arguments)
	}
	wrapped, _ := json.Marshal(map[string]string{"invalid": arguments}) // a string always marshals
	return wrapped
}

// IsObject reports whether raw is a JSON object.
func IsObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) && json.Valid(raw)
}

func output(it berth.Item) (Output, error) {
	var o berth.FunctionCallOutput
	if err := it.Decode(&o); err != nil {
		return Output{}, berth.Invalid("input", "Invalid function call output: %v.", err)
	}
	var out Output
	if json.Unmarshal(o.Output, &out.Text) == nil {
		return out, nil
	}
	if json.Unmarshal(o.Output, &out.Content) != nil {
		return Output{Text: string(o.Output)}, nil
	}
	return out, nil
}

func (r *reader) orphaned(it berth.Item) error {
	r.log.Debug("turned output without call into user message", "call_id", it.CallID())
	content, err := Orphan(it)
	r.out = append(r.out, Turn{Role: "user", Content: content})
	return err
}

// Orphan returns an output without its call as content of a user message. Vendors
// refuse it as an output.
func Orphan(it berth.Item) ([]berth.Content, error) {
	out, err := output(it)
	text := berth.Content{Type: "input_text", Text: "The output of an earlier call, " + it.CallID() + ", was:\n" +
		out.Text}
	return append([]berth.Content{text}, out.Content...), err
}

// endTurn closes the assistant's turn.
func (r *reader) endTurn() {
	if len(r.parts) > 0 {
		r.out = append(r.out, Turn{Role: "assistant", Name: r.name, Parts: r.parts})
		r.parts, r.name = nil, ""
	}
}

// Text returns the text of content, one part a line. It drops content that is not
// text.
func Text(content []berth.Content) string {
	if len(content) == 1 {
		return content[0].Text
	}
	var texts []string
	for _, c := range content {
		if c.Text != "" {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n")
}

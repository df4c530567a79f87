// Package dialogue reads items as the turns of a dialogue, in the order that
// vendors insist on, and keeps what only one vendor understands.
package dialogue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/berth-run/berth"
)

// Interrupted stands in for an output that there is not: vendors refuse a call
// without one.
const Interrupted = "The call was interrupted; there is no output."

// A Turn is what one side says until the other does.
type Turn struct {
	Role    string          // system, developer, user or assistant
	Name    string          // of the speaker, where several share a role
	Content []berth.Content // of all but the assistant
	Said    []Part          // of the assistant, in its order; the outputs of its calls follow at once
}

// A Part is one thing in an assistant's turn: text, reasoning or a call.
type Part struct {
	Text      string
	Reasoning *berth.Reasoning
	Call      *Call
}

// A Call is a call with its output.
type Call struct {
	ID        string
	Name      string          // of letters, digits, _ and -, at most 64
	Arguments json.RawMessage // a JSON object, always
	Output    Output
}

// An Output is what a call gave.
type Output struct {
	Text    string          // where it is text only
	Content []berth.Content // where it is parts
	Missing bool            // there is none; Text says so
}

// Read reads items. Vendors insist on an order that items do not have: what a
// model said in one turn belongs together, its text with its calls, and the
// outputs of those calls follow at once. An output, or anything that the model did
// not say, ends a turn. An output without its call becomes the user's words. What
// is left out is said in the log.
func Read(items []berth.Item, log *slog.Logger) ([]Turn, error) {
	r := &reader{log: log, items: items, pairs: Pair(items)}
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
	said  []Part // of the turn that is still growing
	name  string // of its speaker

	pairs Pairs
}

// Pairs says which output is of which call, by their places among the items.
type Pairs struct {
	OutputOf map[int]int // of a call
	CallOf   map[int]int // of an output
}

// Pair pairs calls with their outputs. An id that occurs again, as some upstreams
// count from zero in every turn, pairs in order.
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
		r.said = append(r.said, Part{Reasoning: &thought})
	default:
		r.log.Debug("an item has no place in the vendor's dialogue and is left out", "type", it.Type(), "id", it.ID())
	}
	return nil
}

func (r *reader) message(it berth.Item) error {
	var m berth.Message
	if err := it.Decode(&m); err != nil {
		return berth.Invalid("input", "Invalid message: %v.", err)
	}
	switch m.Role {
	case "assistant":
		if text := said(m.Content); text != "" {
			r.said, r.name = append(r.said, Part{Text: text}), cmp.Or(m.Name, r.name)
		}
		return nil
	case "system", "developer":
	default:
		m.Role = "user"
	}
	r.endTurn()
	r.out = append(r.out, Turn{Role: m.Role, Name: m.Name, Content: m.Content})
	return nil
}

// said is what an assistant's message says. A refusal is text as well: vendors have
// no word for one in what they are told.
func said(content []berth.Content) string {
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
	call := &Call{ID: c.CallID, Name: Name(c.Name), Arguments: object(c.Arguments), Output: Output{Text: Interrupted, Missing: true}}
	if place, ok := r.pairs.OutputOf[i]; ok {
		var err error
		if call.Output, err = output(r.items[place]); err != nil {
			return err
		}
	} else {
		r.log.Debug("a call without output is told as interrupted", "call_id", c.CallID)
	}
	r.said = append(r.said, Part{Call: call})
	return nil
}

// Name is a name that every vendor takes. Only a model that was wrong has called
// something by another.
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

// object returns what the model wrote as arguments, wrapped if it is no JSON
// object: most vendors parse it, and fail on what a model got wrong.
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
	r.log.Debug("an output without its call is told as the user's text", "call_id", it.CallID())
	content, err := Orphan(it)
	r.out = append(r.out, Turn{Role: "user", Content: content})
	return err
}

// Orphan is an output without its call in the user's words: as an output, it would
// be refused.
func Orphan(it berth.Item) ([]berth.Content, error) {
	out, err := output(it)
	text := berth.Content{Type: "input_text", Text: "The output of an earlier call, " + it.CallID() + ", was:\n" + out.Text}
	return append([]berth.Content{text}, out.Content...), err
}

// endTurn ends the assistant's turn.
func (r *reader) endTurn() {
	if len(r.said) > 0 {
		r.out = append(r.out, Turn{Role: "assistant", Name: r.name, Said: r.said})
		r.said, r.name = nil, ""
	}
}

// Text is the text of content, a line each; what is not text is left out.
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

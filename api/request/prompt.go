package request

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// promptRule checks "prompt".
var promptRule = rule.Object(rule.Fields{
	"id": rule.Text(1, 256), "version": rule.Text(1, 64),
	"variables": func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return rule.WrongType(at, "an object", v)
		}
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if _, ok := obj[name].(string); ok {
				continue
			}
			if err := rule.ByType(rule.InputParts)(rule.Join(at, name), obj[name]); err != nil {
				return err
			}
		}
		return nil
	},
}, "id")

// placeholder matches a variable in the text of a template.
var placeholder = regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)

// Variables returns the sorted names of the variables in a template.
func (r *Rules) Variables(template json.RawMessage) ([]string, error) {
	names := []string{}
	if template == nil || IsNull(template) {
		return names, nil
	}
	var t berth.ResponseRequest
	if err := json.Unmarshal(template, &t); err != nil {
		return nil, fmt.Errorf("decode template: %w", err)
	}
	if err := r.Fill(&t); err != nil {
		return nil, err
	}
	f := filler{values: map[string]json.RawMessage{}, names: map[string]bool{}, lenient: true}
	if err := f.template(&t); err != nil {
		return nil, err
	}
	return slices.AppendSeq(names, slices.Values(slices.Sorted(maps.Keys(f.names)))), nil
}

// Merge sets the fields that a request omits to those of its prompt, with the variables
// replaced. The prompt's messages precede the request's input.
func (r *Rules) Merge(req *berth.ResponseRequest, p *berth.Prompt) error {
	var t berth.ResponseRequest
	if err := json.Unmarshal(p.Template, &t); err != nil {
		return fmt.Errorf("decode template: %w", err)
	}
	if err := r.Fill(&t); err != nil {
		return err
	}
	for name, raw := range req.Prompt.Variables {
		var part map[string]json.RawMessage
		if json.Unmarshal(raw, &part) == nil && fillPart(part) {
			req.Prompt.Variables[name], _ = json.Marshal(part) // part was decoded from JSON
		}
	}
	f := filler{values: req.Prompt.Variables, names: map[string]bool{}}
	if err := f.template(&t); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !f.names[name] {
			return berth.Invalid("prompt.variables",
				"Unknown prompt variable: '%s'. The variables of this prompt are: %s.", rule.Clip(name),
				quotedList(p.Variables))
		}
	}
	if err := r.Fill(&t); err != nil { // again, for the values of variables
		return err
	}
	version := p.Version
	req.Prompt.Version, req.PromptItems = &version, t.Input
	t.Input = nil
	return fillIn(req, &t)
}

// fillIn sets the absent fields of req to those of t.
func fillIn(req, t *berth.ResponseRequest) error {
	var into, from map[string]json.RawMessage
	for v, m := range map[*berth.ResponseRequest]*map[string]json.RawMessage{req: &into, t: &from} {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, m); err != nil {
			return fmt.Errorf("decode request: %w", err)
		}
	}
	if req.Model == "" {
		delete(into, "model")
	}
	for name, v := range from {
		if _, there := into[name]; !there {
			into[name] = v
		}
	}
	raw, err := json.Marshal(into)
	if err != nil {
		return err
	}
	var full berth.ResponseRequest
	if err := json.Unmarshal(raw, &full); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	*req = full
	return nil
}

func quotedList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return "'" + strings.Join(names, "', '") + "'"
}

// A filler replaces placeholders by values and records their names.
type filler struct {
	values  map[string]json.RawMessage
	names   map[string]bool
	lenient bool // do not fail for placeholders without a value
}

func (f *filler) template(t *berth.ResponseRequest) error {
	if t.Instructions != nil {
		words, err := f.text(*t.Instructions)
		if err != nil {
			return err
		}
		t.Instructions = &words
	}
	for i, it := range t.Input {
		filled, err := f.item(it)
		if err != nil {
			return err
		}
		t.Input[i] = filled
	}
	return nil
}

// item replaces the placeholders of a message. Other items have no placeholders.
func (f *filler) item(it berth.Item) (berth.Item, error) {
	var m struct{ Content []map[string]json.RawMessage }
	if it.Type() != berth.ItemMessage || it.Decode(&m) != nil {
		return it, nil
	}
	var parts []map[string]json.RawMessage
	for _, part := range m.Content {
		var words string
		if json.Unmarshal(part["text"], &words) != nil {
			parts = append(parts, part)
			continue
		}
		split, err := f.parts(part, words)
		if err != nil {
			return it, err
		}
		parts = append(parts, split...)
	}
	return it.With(map[string]any{"content": parts})
}

// parts replaces the placeholders of a part with text. A value that is an image or a file
// splits the text into two parts.
func (f *filler) parts(part map[string]json.RawMessage, words string) (out []map[string]json.RawMessage, err error) {
	add := func(words string) {
		if words != "" {
			with := maps.Clone(part)
			with["text"] = berth.StringDelta(words)
			out = append(out, with)
		}
	}
	rest := 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(words, -1) {
		var object map[string]json.RawMessage
		name := words[at[2]:at[3]]
		if json.Unmarshal(f.values[name], &object) != nil || object["text"] != nil {
			continue // a string, an input_text, or missing
		}
		f.names[name] = true
		before, err := f.text(words[rest:at[0]])
		if err != nil {
			return nil, err
		}
		add(before)
		out = append(out, object)
		rest = at[1]
	}
	after, err := f.text(words[rest:])
	if err != nil {
		return nil, err
	}
	add(after)
	if out == nil {
		out = append(out, part) // the text was empty
	}
	return out, nil
}

// text replaces the placeholders of a text. It does not replace placeholders in values.
func (f *filler) text(words string) (string, error) {
	var failed error
	filled := placeholder.ReplaceAllStringFunc(words, func(found string) string {
		name := placeholder.FindStringSubmatch(found)[1]
		f.names[name] = true
		raw, given := f.values[name]
		if !given {
			if !f.lenient && failed == nil {
				failed = berth.Invalid("prompt.variables", "Missing prompt variable: '%s'.", name)
			}
			return found
		}
		var value string
		if json.Unmarshal(raw, &value) == nil {
			return value
		}
		var part struct{ Text *string }
		if json.Unmarshal(raw, &part) != nil || part.Text == nil {
			failed = berth.Invalid(fmt.Sprintf("prompt.variables.%s", name),
				"Invalid prompt variable '%s': the instructions of a prompt cannot contain an image or a file. Use a string or an 'input_text'.",
				name)
			return found
		}
		return *part.Text
	})
	return filled, failed
}

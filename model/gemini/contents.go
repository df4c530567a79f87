package gemini

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"mime"
	"path"
	"reflect"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// vendor identifies this provider's seals.
const vendor = "gemini"

// A signature holds what one part of an answer needs when it is sent back.
type signature struct {
	Of        string `json:"of"`    // the id of the answer
	Place     string `json:"place"` // of the part: call, text or thought
	Thought   string `json:"thought,omitempty"`
	Signature string `json:"signature"`

	Args json.RawMessage `json:"args,omitempty"` // of a call, as the model wrote them
}

// arguments returns the arguments of the signed call as the model wrote them. stored
// may spell out fields that the model left null.
func (s signature) arguments(stored json.RawMessage) json.RawMessage {
	var wrote, has map[string]any
	if len(s.Args) == 0 || json.Unmarshal(s.Args, &wrote) != nil || json.Unmarshal(stored, &has) != nil {
		return stored
	}
	for _, fields := range []map[string]any{wrote, has} {
		maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
	}
	if !reflect.DeepEqual(wrote, has) {
		return stored
	}
	return s.Args
}

// unsigned is the value that the vendor accepts in place of a signature for a call
// that another model made.
const unsigned = "skip_thought_signature_validator"

// setDialogue adds the system text and the contents.
func (p *Provider) setDialogue(out *request, req *model.Request, g generation, hint string) error {
	turns, err := dialogue.Read(req.Items, p.up.Log)
	if err != nil {
		return err
	}
	system, turns := dialogue.System(req.Instructions, turns)
	if parts := texts(system, hint); len(parts) > 0 {
		out.SystemInstruction = &content{Parts: parts}
	}
	b := &builder{g: g, family: family(req.Model), ids: dialogue.IDs{Length: 64, Plain: true}}
	for i, t := range turns {
		if t.Role == "assistant" {
			err = b.model(t, current(turns[i+1:]))
		} else {
			err = b.user(t)
		}
		if err != nil {
			return err
		}
	}
	if n := len(b.out); n == 0 || b.out[n-1].Role == "model" {
		b.add("user", texts(dialogue.Continue))
	}
	out.Contents = b.out
	return nil
}

// current reports whether all turns are the model's. Calls before them then belong to
// the turn in progress.
func current(turns []dialogue.Turn) bool {
	for _, t := range turns {
		if t.Role != "assistant" {
			return false
		}
	}
	return true
}

// texts returns a part for each text that is not empty.
func texts(all ...string) []part {
	var parts []part
	for _, text := range all {
		if strings.TrimSpace(text) != "" {
			parts = append(parts, part{Text: &text})
		}
	}
	return parts
}

type builder struct {
	g      generation
	family string
	out    []content
	ids    dialogue.IDs
}

// add adds parts of one side. Consecutive parts of a side share a content, but outputs
// of calls are separate from user messages.
func (b *builder) add(role string, parts []part) {
	if len(parts) == 0 {
		return
	}
	n := len(b.out) - 1
	if n >= 0 && b.out[n].Role == role &&
		(b.out[n].Parts[0].FunctionResponse == nil) == (parts[0].FunctionResponse == nil) {
		b.out[n].Parts = append(b.out[n].Parts, parts...)
		return
	}
	if n < 0 && role == "model" {
		b.add("user", texts(dialogue.AssistantFirst))
	}
	b.out = append(b.out, content{Role: role, Parts: parts})
}

func (b *builder) user(t dialogue.Turn) error {
	if t.Role != "user" {
		b.add("user", texts(t.Aside()))
		return nil
	}
	parts, err := contentParts(t.Content)
	if err != nil {
		return err
	}
	if t.Name != "" {
		parts = append(texts(t.Speaker()), parts...)
	}
	if len(parts) == 0 {
		parts = texts(dialogue.Empty)
	}
	b.add("user", parts)
	return nil
}

// model adds the model's turn and the outputs of its calls. current states whether the
// turn is in progress.
func (b *builder) model(t dialogue.Turn, current bool) error {
	of := b.lastAnswer(t.Parts)
	var parts, outputs, media []part
	var next signature // of the next call
	calls := 0
	for _, p := range t.Parts {
		switch {
		case p.Reasoning != nil:
			if s, ok := b.signature(p.Reasoning); ok && s.Of == of {
				if s.Place == "call" {
					next = s
				} else {
					parts = append(parts, part{Text: &s.Thought, Thought: s.Place == "thought",
						ThoughtSignature: s.Signature})
				}
			}
		case p.Call != nil:
			if next.Signature == "" && calls == 0 && current && b.g.signs() {
				next.Signature = unsigned
			}
			calls++
			call := &functionCall{ID: b.ids.For(p.Call.ID), Name: p.Call.Name, Args: next.arguments(p.Call.Arguments)}
			parts = append(parts, part{FunctionCall: call, ThoughtSignature: next.Signature})
			next = signature{}
			output, shown, err := b.output(p.Call.Output)
			if err != nil {
				return err
			}
			output.ID, output.Name = call.ID, call.Name
			outputs, media = append(outputs, part{FunctionResponse: output}), append(media, shown...)
		default:
			parts = append(parts, texts(p.Text)...)
		}
	}
	b.add("model", parts)
	b.add("user", outputs)
	b.add("user", media)
	return nil
}

// lastAnswer returns the id of the answer that the last signature came with.
// Signatures of other answers belong to answers that broke off.
func (b *builder) lastAnswer(parts []dialogue.Part) (of string) {
	for _, p := range parts {
		if p.Reasoning != nil {
			if s, ok := b.signature(p.Reasoning); ok {
				of = s.Of
			}
		}
	}
	return of
}

// signature opens a seal of this vendor and family.
func (b *builder) signature(r *berth.Reasoning) (s signature, ok bool) {
	ok = dialogue.Unseal(vendor, b.family, r.EncryptedContent, &s)
	return s, ok
}

// output returns the response to a call, and its images and files if the model accepts
// none in a response.
func (b *builder) output(o dialogue.Output) (*functionResponse, []part, error) {
	word := "output"
	if o.Missing {
		word = "error"
	}
	if o.Content == nil {
		return &functionResponse{Response: map[string]string{word: o.Text}}, nil, nil
	}
	parts, err := contentParts(o.Content)
	if err != nil {
		return nil, nil, err
	}
	var lines []string
	var within, after []part
	for _, p := range parts {
		switch {
		case p.Text != nil:
			lines = append(lines, *p.Text)
		case p.InlineData != nil && b.g.signs():
			within = append(within, p)
		default:
			after = append(after, p)
		}
	}
	if len(after) > 0 {
		lines = append(lines, "(What this call shows follows in the next message.)")
	}
	return &functionResponse{Response: map[string]string{word: strings.Join(lines, "\n")}, Parts: within}, after, nil
}

// contentParts converts content to parts and drops empty content.
func contentParts(all []berth.Content) ([]part, error) {
	var parts []part
	for _, c := range all {
		var p part
		var err error
		switch c.Type {
		case "input_image":
			p, err = mediaPart(c.ImageURL, "", "image/jpeg")
		case "input_file":
			address := c.FileData
			if address == "" {
				address = c.FileURL
			} else if !strings.HasPrefix(address, "data:") {
				address = "data:" + mediaType(c.Filename, "application/pdf") + ";base64," + address
			}
			p, err = mediaPart(address, c.Filename, "application/pdf")
		default:
			parts = append(parts, texts(c.Text+c.Refusal)...)
			continue
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// mediaType returns the media type of a file name's extension.
func mediaType(name, otherwise string) string {
	name, _, _ = strings.Cut(name, "?")
	kind, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(name)), ";")
	if kind == "" {
		return otherwise
	}
	return kind
}

// mediaPart returns the part of an image or file, from its data or its URL.
func mediaPart(address, name, otherwise string) (part, error) {
	data, ok := strings.CutPrefix(address, "data:")
	switch {
	case address == "":
		return part{}, berth.Invalid("input", "An image or file needs file_id, its data or its address.")
	case !ok:
		return part{FileData: &fileData{FileURI: address, MIMEType: mediaType(address, otherwise)}}, nil
	}
	head, data, ok := strings.Cut(data, ",")
	kind, isBase64 := strings.CutSuffix(head, ";base64")
	kind, _, _ = strings.Cut(kind, ";")
	if _, err := base64.StdEncoding.DecodeString(data); !ok || !isBase64 || err != nil {
		return part{}, berth.Invalid("input", "The data: URL of an image or file must be in base64.")
	}
	if kind == "" || kind == "application/octet-stream" {
		kind = mediaType(name, otherwise)
	}
	return part{InlineData: &blob{MIMEType: kind, Data: data}}, nil
}

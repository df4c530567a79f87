package anthropic

import (
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// vendor identifies this provider's seals.
const vendor = "anthropic"

// A thought holds what a thinking block needs when it is sent back.
type thought struct {
	Of        string `json:"of"` // the id of its message
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"` // of a redacted block
}

// setDialogue adds the system text and the messages.
func (p *Provider) setDialogue(out *request, req *model.Request, hint string) error {
	turns, err := dialogue.Read(req.Items, p.up.Log)
	if err != nil {
		return err
	}
	g := generationOf(req.Model)
	withThoughts := out.acceptsThoughts(g)
	if err := out.dialogue(req, turns, withThoughts, hint); err != nil {
		return err
	}
	if out.Thinking != nil && out.Thinking.Type == "enabled" && out.thoughtless() {
		// The answered calls come from another model, or were made without a thought.
		// A model with a budget refuses to continue from there with thinking.
		p.up.Log.Debug("disabled thinking after calls without thoughts", "model", req.Model)
		out.Thinking = nil
		return out.dialogue(req, turns, false, hint)
	}
	return nil
}

// thoughtless reports whether the dialogue ends with results of calls that no thought
// precedes.
func (r *request) thoughtless() bool {
	n := len(r.Messages) - 1
	return n > 0 && r.Messages[n].Content[0].Type == "tool_result" && !isThought(r.Messages[n-1].Content[0])
}

func isThought(b block) bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

// dialogue converts turns to messages of alternating roles.
func (r *request) dialogue(req *model.Request, turns []dialogue.Turn, withThoughts bool, hint string) error {
	b := &builder{family: family(req.Model), withThoughts: withThoughts, vendor: r.vendor,
		ids: dialogue.IDs{Length: 64, Plain: true}}
	system, turns := dialogue.System(req.Instructions, turns)
	r.System = textBlocks(system, r.about, hint)
	for _, t := range turns {
		if err := b.turn(t); err != nil {
			return err
		}
	}
	if len(b.out) == 0 || b.out[len(b.out)-1].Role == "assistant" {
		b.user(textBlocks(dialogue.Continue)...)
	}
	r.Messages = b.out
	return nil
}

// textBlocks returns a block for each text that is not empty.
func textBlocks(texts ...string) []block {
	var blocks []block
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			blocks = append(blocks, block{Type: "text", Text: text})
		}
	}
	return blocks
}

type builder struct {
	family       string
	withThoughts bool // include thoughts
	vendor       vendorTools
	out          []message
	ids          dialogue.IDs
}

func (b *builder) turn(t dialogue.Turn) error {
	switch t.Role {
	case "assistant":
		return b.assistant(t)
	case "system", "developer":
		b.user(textBlocks(t.Aside())...)
		return nil
	}
	blocks, err := contentBlocks(t.Content)
	if err != nil {
		return err
	}
	if t.Name != "" {
		blocks = append(textBlocks(t.Speaker()), blocks...)
	}
	if len(blocks) == 0 {
		blocks = textBlocks(dialogue.Empty)
	}
	b.user(blocks...)
	return nil
}

// user adds blocks to the user's side.
func (b *builder) user(blocks ...block) { b.add("user", blocks) }

func (b *builder) add(role string, blocks []block) {
	if len(blocks) == 0 {
		return
	}
	if n := len(b.out) - 1; n >= 0 && b.out[n].Role == role {
		b.out[n].Content = append(b.out[n].Content, blocks...)
		return
	}
	if len(b.out) == 0 && role == "assistant" {
		b.user(textBlocks(dialogue.AssistantFirst)...)
	}
	b.out = append(b.out, message{Role: role, Content: blocks})
}

// assistant adds the model's turn and the results of its calls.
func (b *builder) assistant(t dialogue.Turn) error {
	of := b.lastAnswer(t.Parts)
	var blocks, results []block
	end := 0 // blocks up to the last that is not a thought
	for _, part := range t.Parts {
		switch {
		case part.Reasoning != nil:
			if th, ok := b.thought(part.Reasoning); ok && th.Of == of {
				blocks = append(blocks, th.block())
			}
			continue
		case part.Call != nil:
			uses, answers, err := b.calls(part.Call)
			if err != nil {
				return err
			}
			blocks, results = append(blocks, uses...), append(results, answers...)
		default:
			blocks = append(blocks, textBlocks(part.Text)...)
		}
		end = len(blocks)
	}
	b.add("assistant", blocks[:end]) // a message must not end with a thought
	b.user(results...)
	return nil
}

// calls returns the blocks of a call and of its output.
func (b *builder) calls(c *dialogue.Call) (uses, results []block, err error) {
	for i, x := range b.vendor.exchanges(c) {
		id := c.ID
		if i > 0 {
			id = fmt.Sprintf("%s_%d", c.ID, i+1)
		}
		id = b.ids.For(id)
		uses = append(uses, block{Type: "tool_use", ID: id, Name: x.name, Input: x.input})
		answer, err := result(x.output)
		if err != nil {
			return nil, nil, err
		}
		answer.ToolUseID = id
		answer.IsError = answer.IsError || x.failed
		results = append(results, answer)
	}
	return uses, results, nil
}

// lastAnswer returns the id of the message that the last thought came with. Thoughts
// of other messages belong to answers that broke off.
func (b *builder) lastAnswer(parts []dialogue.Part) (of string) {
	for _, part := range parts {
		if part.Reasoning != nil {
			if th, ok := b.thought(part.Reasoning); ok {
				of = th.Of
			}
		}
	}
	return of
}

// thought opens a seal of this vendor and family.
func (b *builder) thought(r *berth.Reasoning) (th thought, ok bool) {
	ok = b.withThoughts && dialogue.Unseal(vendor, b.family, r.EncryptedContent, &th)
	return th, ok
}

func (th *thought) block() block {
	if th.Data != "" {
		return block{Type: "redacted_thinking", Data: th.Data}
	}
	return block{Type: "thinking", Thinking: &th.Thinking, Signature: th.Signature}
}

// mark sets up to four cache marks: after the tools and system text, which rarely
// change, after the previous turn, and at the end.
func (r *request) mark(ttl string) {
	mark := &cacheControl{Type: "ephemeral"}
	if ttl == "1h" {
		mark.TTL = ttl
	}
	if n := len(r.Tools); n > 0 {
		r.Tools[n-1].CacheControl = mark
	}
	if n := len(r.System); n > 0 {
		r.System[n-1].CacheControl = mark
	}
	for n, marks := len(r.Messages)-1, 0; n >= 0 && marks < 2; n -= 2 { // the user's messages
		content := r.Messages[n].Content
		content[len(content)-1].CacheControl = mark
		marks++
	}
}

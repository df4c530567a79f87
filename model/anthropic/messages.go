package anthropic

import (
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// vendor is whose seals are opened here.
const vendor = "anthropic"

// A thought is what a thinking block must come back with.
type thought struct {
	Of        string `json:"of"` // the id of the message that it came with
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"` // of a block that is redacted
}

// tell adds the system text and the dialogue.
func (p *Provider) tell(out *request, req *model.Request, hint string) error {
	turns, err := dialogue.Read(req.Items, p.up.Log)
	if err != nil {
		return err
	}
	g := generationOf(req.Model)
	keep := out.keepsThoughts(g)
	if err := out.dialogue(req, turns, keep, hint); err != nil {
		return err
	}
	if out.Thinking != nil && out.Thinking.Type == "enabled" && out.thoughtless() {
		// The calls that are being answered were not made here, or without a thought:
		// a model with a budget refuses to go on from there thinking.
		p.up.Log.Debug("the model does not think in this turn, because the calls before it came without thoughts", "model", req.Model)
		out.Thinking = nil
		return out.dialogue(req, turns, false, hint)
	}
	return nil
}

// thoughtless reports whether the dialogue ends with results of calls that no
// thought came before.
func (r *request) thoughtless() bool {
	n := len(r.Messages) - 1
	return n > 0 && r.Messages[n].Content[0].Type == "tool_result" && !isThought(r.Messages[n-1].Content[0])
}

func isThought(b block) bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

// dialogue puts turns into messages of two sides that alternate.
func (r *request) dialogue(req *model.Request, turns []dialogue.Turn, keep bool, hint string) error {
	b := &builder{family: family(req.Model), keep: keep, ids: dialogue.IDs{Length: 64, Plain: true}}
	system, turns := dialogue.System(req.Instructions, turns)
	r.System = textBlocks(system, hint)
	for _, t := range turns {
		if err := b.turn(t); err != nil {
			return err
		}
	}
	if len(b.out) == 0 || b.out[len(b.out)-1].Role == "assistant" {
		b.user(textBlocks(dialogue.GoOn)...)
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
	family string
	keep   bool // thoughts
	out    []message
	ids    dialogue.IDs
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

// user adds to what the user says.
func (b *builder) user(blocks ...block) { b.say("user", blocks) }

func (b *builder) say(role string, blocks []block) {
	if len(blocks) == 0 {
		return
	}
	if n := len(b.out) - 1; n >= 0 && b.out[n].Role == role {
		b.out[n].Content = append(b.out[n].Content, blocks...)
		return
	}
	if len(b.out) == 0 && role == "assistant" {
		b.user(textBlocks(dialogue.Begin)...)
	}
	b.out = append(b.out, message{Role: role, Content: blocks})
}

// assistant adds what the model said in one turn, and the results of its calls.
func (b *builder) assistant(t dialogue.Turn) error {
	of := b.lastAnswer(t.Said)
	var said, results []block
	words := 0 // blocks up to the last that is no thought
	for _, part := range t.Said {
		switch {
		case part.Reasoning != nil:
			if th, ok := b.thought(part.Reasoning); ok && th.Of == of {
				said = append(said, th.block())
			}
			continue
		case part.Call != nil:
			id := b.ids.For(part.Call.ID)
			said = append(said, block{Type: "tool_use", ID: id, Name: part.Call.Name, Input: part.Call.Arguments})
			result, err := result(part.Call.Output)
			if err != nil {
				return err
			}
			result.ToolUseID = id
			results = append(results, result)
		default:
			said = append(said, textBlocks(part.Text)...)
		}
		words = len(said)
	}
	b.say("assistant", said[:words]) // a message must not end with a thought
	b.user(results...)
	return nil
}

// lastAnswer is the message that the last of the thoughts came with. Those of
// others belong to answers that broke off.
func (b *builder) lastAnswer(said []dialogue.Part) (of string) {
	for _, part := range said {
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
	ok = b.keep && dialogue.Unseal(vendor, b.family, r.EncryptedContent, &th)
	return th, ok
}

func (th *thought) block() block {
	if th.Data != "" {
		return block{Type: "redacted_thinking", Data: th.Data}
	}
	return block{Type: "thinking", Thinking: &th.Thinking, Signature: th.Signature}
}

// mark sets up to four marks up to which the context is kept: after what hardly
// changes, where the turn before ended, and at the end.
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
	for n, marks := len(r.Messages)-1, 0; n >= 0 && marks < 2; n -= 2 { // the user's
		content := r.Messages[n].Content
		content[len(content)-1].CacheControl = mark
		marks++
	}
}

package chat

import (
	"log/slog"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// messages converts items to messages.
func (p *Provider) messages(req *model.Request) ([]message, error) {
	turns, err := dialogue.Read(req.Items, p.up.Log)
	if err != nil {
		return nil, err
	}
	b := &builder{opts: &p.opts, log: p.up.Log, out: make([]message, 0, 1+len(turns)),
		ids: dialogue.IDs{Length: p.opts.CallIDLength}, custom: p.custom(req.Tools)}
	if req.Instructions != "" {
		b.system(p.opts.SystemRole, req.Instructions, "")
	}
	for _, t := range turns {
		if err := b.turn(t); err != nil {
			return nil, err
		}
	}
	return b.out, nil
}

type builder struct {
	opts *Options
	log  *slog.Logger
	out  []message
	ids  dialogue.IDs

	custom map[string]bool // names of custom tools
}

func (b *builder) turn(t dialogue.Turn) error {
	switch t.Role {
	case "assistant":
		return b.assistant(t)
	case "developer":
		b.system(b.opts.SystemRole, dialogue.Text(t.Content), t.Name)
	case "system":
		b.system("system", dialogue.Text(t.Content), t.Name)
	default:
		content, err := b.content(t.Content)
		if err != nil {
			return err
		}
		b.out = append(b.out, message{Role: "user", Content: content, Name: t.Name})
	}
	return nil
}

// system adds a system message. It merges those at the start, because the templates of
// many models accept only one.
func (b *builder) system(role, text, name string) {
	if len(b.out) == 1 && b.out[0].Role == role && b.out[0].Name == name {
		b.out[0].Content = b.out[0].Content.(string) + "\n\n" + text
		return
	}
	b.out = append(b.out, message{Role: role, Content: text, Name: name})
}

// assistant adds the model's turn as one message, and the outputs of its calls.
func (b *builder) assistant(t dialogue.Turn) error {
	m := message{Role: "assistant", Name: t.Name}
	var texts []string
	var thought, pending string // reasoning of the next part
	var answers []message
	var media []part
	for _, p := range t.Parts {
		if p.Reasoning != nil {
			pending += dialogue.Text(p.Reasoning.Content)
			continue
		}
		thought, pending = thought+pending, ""
		if p.Call == nil {
			texts = append(texts, p.Text)
			continue
		}
		c := p.Call
		id := b.ids.For(c.ID)
		m.ToolCalls = append(m.ToolCalls, newToolCall(id, c, b.custom[c.Name]))
		text, shown, err := b.output(c.Output)
		if err != nil {
			return err
		}
		answers = append(answers, message{Role: "tool", ToolCallID: id, Content: text})
		media = append(media, shown...)
	}
	if len(texts) == 0 && len(m.ToolCalls) == 0 {
		return nil
	}
	if len(texts) > 0 {
		m.Content = strings.Join(texts, "\n\n")
	}
	switch b.opts.Reasoning {
	case "reasoning_content":
		m.ReasoningContent = thought
	case "reasoning":
		m.Reasoning = thought
	}
	b.out = append(append(b.out, m), answers...)
	if len(media) > 0 {
		b.out = append(b.out, message{Role: "user", Content: media})
	}
	return nil
}

// output returns the text of a call's output, and its images and files, which a tool
// message cannot hold.
func (b *builder) output(o dialogue.Output) (string, []part, error) {
	if o.Content == nil {
		return o.Text, nil, nil
	}
	parts, _, err := b.parts(o.Content)
	if err != nil {
		return "", nil, err
	}
	var texts []string
	var media []part
	for _, p := range parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		} else {
			media = append(media, p)
		}
	}
	if len(media) > 0 {
		texts = append(texts, "(What this call shows follows in the next user message.)")
	}
	return strings.Join(texts, "\n"), media, nil
}

// content converts a user's content to a string, or to parts if it has more than text.
// Not every upstream accepts parts.
func (b *builder) content(content []berth.Content) (any, error) {
	if len(content) == 1 && content[0].Type == "input_text" {
		return content[0].Text, nil
	}
	parts, media, err := b.parts(content)
	if err != nil {
		return nil, err
	}
	if !media {
		return dialogue.Text(content), nil
	}
	return parts, nil
}

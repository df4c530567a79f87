package chat

import (
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
)

// content turns what the user sent into a string, or into parts where there is
// more than text: not every upstream takes parts.
func (b *builder) content(content []berth.Content) (any, error) {
	if len(content) == 1 && content[0].Type == "input_text" {
		return content[0].Text, nil
	}
	parts, media, err := b.parts(content)
	if err != nil {
		return nil, err
	}
	if !media {
		return text(content), nil
	}
	return parts, nil
}

// text is the text of content; what is not text is left out.
func text(content []berth.Content) string {
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

// parts turns content into parts, and reports whether there is more than text.
func (b *builder) parts(content []berth.Content) (parts []part, media bool, err error) {
	for _, c := range content {
		switch {
		case c.Type == "input_image":
			if c.ImageURL == "" {
				return nil, false, berth.Invalid("input", "An image needs image_url or file_id.")
			}
			parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{URL: c.ImageURL, Detail: detail(c.Detail)}})
			media = true
		case c.Type == "input_file":
			if c.FileData == "" {
				return nil, false, berth.Invalid("input", "This model takes files with file_id or file_data, not with file_url.")
			}
			f := &file{Filename: c.Filename, FileData: c.FileData}
			if f.Filename == "" {
				f.Filename = "file"
			}
			parts = append(parts, part{Type: "file", File: f})
			media = true
		case c.Text != "":
			parts = append(parts, part{Type: "text", Text: c.Text})
		default:
			b.log.Debug("a content has no place in Chat Completions and is left out", "type", c.Type)
		}
	}
	return parts, media, nil
}

// detail drops what Chat Completions has no word for.
func detail(d string) string {
	switch d {
	case "low", "high", "auto":
		return d
	}
	return ""
}

// output is the text of the output at a place among the items, and the images and
// files in it, for which a tool's message has no room.
func (b *builder) output(place int) (string, []part, error) {
	var o berth.FunctionCallOutput
	if err := b.items[place].Decode(&o); err != nil {
		return "", nil, berth.Invalid("input", "Invalid function call output: %v.", err)
	}
	var s string
	if json.Unmarshal(o.Output, &s) == nil {
		return s, nil, nil
	}
	var content []berth.Content
	if json.Unmarshal(o.Output, &content) != nil {
		return string(o.Output), nil, nil
	}
	parts, _, err := b.parts(content)
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

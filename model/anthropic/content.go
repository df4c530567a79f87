package anthropic

import (
	"encoding/base64"
	"mime"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model/dialogue"
)

// contentBlocks converts content to blocks and drops empty content.
func contentBlocks(content []berth.Content) ([]block, error) {
	var blocks []block
	for _, c := range content {
		switch c.Type {
		case "input_image":
			src, err := imageSource(c)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, block{Type: "image", Source: src})
		case "input_file":
			src, err := documentSource(c)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, block{Type: "document", Source: src, Title: c.Filename})
		default:
			blocks = append(blocks, textBlocks(c.Text+c.Refusal)...)
		}
	}
	return blocks, nil
}

// result returns the tool_result of an output.
func result(o dialogue.Output) (block, error) {
	b := block{Type: "tool_result", IsError: o.Missing}
	if o.Content == nil {
		if o.Text != "" {
			b.Content = o.Text
		}
		return b, nil
	}
	blocks, err := contentBlocks(o.Content)
	if len(blocks) > 0 {
		b.Content = blocks
	}
	return b, err
}

// imageSource returns the source of an image: its URL or its data.
func imageSource(c berth.Content) (*source, error) {
	if c.ImageURL == "" {
		return nil, berth.Invalid("input", "An image needs image_url or file_id.")
	}
	if !strings.HasPrefix(c.ImageURL, "data:") {
		return &source{Type: "url", URL: c.ImageURL}, nil
	}
	kind, data, ok := cutDataURL(c.ImageURL)
	if !ok {
		return nil, berth.Invalid("input", "An image's data: URL must be in base64.")
	}
	switch kind {
	case "image/jpg":
		kind = "image/jpeg"
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		return nil, berth.Invalid("input", "This model takes images of type PNG, JPEG, GIF and WebP, not '%s'.", kind)
	}
	return &source{Type: "base64", MediaType: kind, Data: data}, nil
}

// documentSource returns the source of a file: its URL, data or text.
func documentSource(c berth.Content) (*source, error) {
	if c.FileData == "" {
		if c.FileURL == "" {
			return nil, berth.Invalid("input", "A file needs file_id, file_data or file_url.")
		}
		return &source{Type: "url", URL: c.FileURL}, nil
	}
	kind, data := mime.TypeByExtension(path.Ext(c.Filename)), c.FileData
	if strings.HasPrefix(c.FileData, "data:") {
		var ok bool
		if kind, data, ok = cutDataURL(c.FileData); !ok {
			return nil, berth.Invalid("input", "A file's data: URL must be in base64.")
		}
	}
	if kind == "application/pdf" {
		return &source{Type: "base64", MediaType: kind, Data: data}, nil
	}
	text, err := base64.StdEncoding.DecodeString(data)
	if err != nil || !utf8.Valid(text) || len(text) == 0 {
		return nil, berth.Invalid("input", "This model takes PDF and text files; '%s' is neither.", c.Filename)
	}
	return &source{Type: "text", MediaType: "text/plain", Data: string(text)}, nil
}

// cutDataURL returns the media type and the base64 data of a data: URL.
func cutDataURL(url string) (kind, data string, ok bool) {
	head, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ",")
	if !ok || !strings.HasSuffix(head, ";base64") {
		return "", "", false
	}
	kind, _, _ = strings.Cut(head, ";")
	return strings.ToLower(kind), data, true
}

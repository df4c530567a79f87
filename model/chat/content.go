package chat

import "github.com/berth-run/berth"

// parts converts content to parts. It reports whether there is more than text.
func (b *builder) parts(content []berth.Content) (parts []part, media bool, err error) {
	for _, c := range content {
		switch {
		case c.Type == "input_image":
			if c.ImageURL == "" {
				return nil, false, berth.Invalid("input", "An image needs image_url or file_id.")
			}
			parts = append(parts, part{Type: "image_url",
				ImageURL: &imageURL{URL: c.ImageURL, Detail: detail(c.Detail)}})
			media = true
		case c.Type == "input_file":
			if c.FileData == "" {
				return nil, false, berth.Invalid("input",
					"This model takes files with file_id or file_data, not with file_url.")
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
			b.log.Debug("dropped content that Chat Completions does not have", "type", c.Type)
		}
	}
	return parts, media, nil
}

// detail returns "" for a detail that Chat Completions does not have.
func detail(d string) string {
	switch d {
	case "low", "high", "auto":
		return d
	}
	return ""
}

package threads

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
)

// A Message is a message of a user or an assistant in a thread.
type Message struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"` // "thread.message"
	CreatedAt         int64             `json:"created_at"`
	AssistantID       *string           `json:"assistant_id"`
	ThreadID          string            `json:"thread_id"`
	RunID             *string           `json:"run_id"`
	Status            berth.Status      `json:"status"` // in_progress, completed or incomplete
	IncompleteDetails *Details          `json:"incomplete_details"`
	IncompleteAt      *int64            `json:"incomplete_at"`
	CompletedAt       *int64            `json:"completed_at"`
	Role              string            `json:"role"` // user or assistant
	Content           []Content         `json:"content"`
	Attachments       []Attachment      `json:"attachments"`
	Metadata          map[string]string `json:"metadata"`
}

// Details hold the reason for which a message or a run is incomplete. The reason is absent
// if none of OpenAI's applies.
type Details struct {
	Reason string `json:"reason,omitempty"`
}

// Content is one part of a message: text, refusal, image_file or image_url.
type Content struct {
	Type      string     `json:"type"`
	Text      *Text      `json:"text,omitempty"`
	Refusal   *string    `json:"refusal,omitempty"`
	ImageFile *ImageFile `json:"image_file,omitempty"`
	ImageURL  *ImageURL  `json:"image_url,omitempty"`
}

// A Text is the text of a part.
type Text struct {
	Value       string       `json:"value"`
	Annotations []Annotation `json:"annotations"`
}

// UnmarshalJSON also accepts the short form of requests, a string.
func (t *Text) UnmarshalJSON(b []byte) error {
	t.Annotations = []Annotation{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &t.Value)
	}
	type plain Text
	err := json.Unmarshal(b, (*plain)(t))
	t.Annotations = orEmpty(t.Annotations)
	return err
}

// An ImageFile is an uploaded image.
type ImageFile struct {
	FileID berth.FileID `json:"file_id"`
	Detail string       `json:"detail,omitempty"`
}

// An ImageURL is an image at a web URL or in a data URL.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

// An Attachment is a file for tools.
type Attachment struct {
	FileID berth.FileID `json:"file_id"`
	Tools  []berth.Tool `json:"tools"`
}

// A MessageRequest is a request for a new message.
type MessageRequest struct {
	Role        string            `json:"role"`
	Content     Contents          `json:"content"`
	Attachments []Attachment      `json:"attachments"`
	Metadata    map[string]string `json:"metadata"`
}

// Contents are the parts of a message.
type Contents []Content

// UnmarshalJSON also accepts the short form, a string.
func (c *Contents) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		text := new(Text)
		*c = Contents{{Type: "text", Text: text}}
		return json.Unmarshal(b, text)
	}
	return json.Unmarshal(b, (*[]Content)(c))
}

// newMessage returns the message of a request.
func newMessage(thread string, req *MessageRequest, now int64) *Message {
	m := &Message{ID: berth.NewID(berth.PrefixMessage), Object: string(kindMessage), CreatedAt: now, ThreadID: thread,
		Status: berth.StatusCompleted, CompletedAt: &now, Role: req.Role, Content: req.Content,
		Attachments: orEmpty(req.Attachments), Metadata: orEmptyMap(req.Metadata)}
	for _, c := range m.Content {
		if c.ImageFile != nil && c.ImageFile.Detail == "" {
			c.ImageFile.Detail = "auto"
		}
		if c.ImageURL != nil && c.ImageURL.Detail == "" {
			c.ImageURL.Detail = "auto"
		}
	}
	for i := range m.Attachments {
		m.Attachments[i].Tools = orEmpty(m.Attachments[i].Tools)
	}
	return m
}

// files returns the files of a message by their place in the request.
func (req *MessageRequest) files() map[string]berth.FileID {
	named := map[string]berth.FileID{}
	for i, c := range req.Content {
		if c.ImageFile != nil {
			named[fmt.Sprintf("content[%d].image_file.file_id", i)] = c.ImageFile.FileID
		}
	}
	for i, a := range req.Attachments {
		named[fmt.Sprintf("attachments[%d].file_id", i)] = a.FileID
	}
	return named
}

// item returns a message as an input item for the model. It returns the zero Item for a
// message without content.
func (m *Message) item() berth.Item {
	parts := make([]berth.Content, 0, len(m.Content))
	for _, c := range m.Content {
		switch {
		case c.Text != nil && m.Role == "assistant":
			parts = append(parts, berth.Content{Type: "output_text", Text: c.Text.withoutMarks()})
		case c.Text != nil:
			parts = append(parts, berth.Content{Type: "input_text", Text: c.Text.Value})
		case c.Refusal != nil:
			parts = append(parts, berth.Content{Type: "refusal", Refusal: *c.Refusal})
		case c.ImageFile != nil && m.Role == "assistant": // no model reads images of its own messages
		case c.ImageFile != nil:
			parts = append(parts, berth.Content{Type: "input_image", FileID: string(c.ImageFile.FileID),
				Detail: c.ImageFile.Detail})
		case c.ImageURL != nil:
			parts = append(parts, berth.Content{Type: "input_image", ImageURL: c.ImageURL.URL,
				Detail: c.ImageURL.Detail})
		}
	}
	if len(parts) == 0 {
		return berth.Item{}
	}
	return berth.NewItem(berth.Message{ID: m.ID, Type: berth.ItemMessage, Status: berth.StatusCompleted, Role: m.Role,
		Content: parts})
}

// contentOf returns the content of an item of the model, which is or was the message of a
// part: the images that code displayed before it, and its texts.
func (r *Record) contentOf(leg berth.ResponseID, p *part, it berth.Item) []Content {
	var m berth.Message
	out := []Content{}
	for _, id := range p.images {
		if r.Files[id] {
			out = append(out, Content{Type: "image_file", ImageFile: &ImageFile{FileID: id}})
		}
	}
	if it.Decode(&m) != nil {
		return out
	}
	for _, c := range m.Content {
		switch c.Type {
		case "output_text":
			out = append(out, Content{Type: "text", Text: r.annotated(leg, p.index, c)})
		case "refusal":
			out = append(out, Content{Type: "refusal", Refusal: &c.Refusal})
		}
	}
	return out
}

// textOf returns the text of one part, or "" if there is no such part.
func textOf(parts []Content, index int) string {
	if index >= len(parts) {
		return ""
	}
	switch c := parts[index]; {
	case c.Text != nil:
		return c.Text.Value
	case c.Refusal != nil:
		return *c.Refusal
	}
	return ""
}

// rest returns the part of whole after the prefix sent, or "" if whole has another prefix.
func rest(whole, sent string) string {
	after, _ := strings.CutPrefix(whole, sent)
	if after == whole && sent != "" {
		return ""
	}
	return after
}

package berth

import "encoding/json"

// A Prompt is a request for a response that is kept on the server, with
// variables to be filled in: {{name}} in the text of its instructions and
// messages. Each change of the template makes a new version.
type Prompt struct {
	ID        PromptID          `json:"id"`
	Object    string            `json:"object"` // "prompt"
	CreatedAt int64             `json:"created_at"`
	Name      string            `json:"name"`
	Version   string            `json:"version"`   // "1", "2" and so on
	Template  json.RawMessage   `json:"template"`  // fields of a ResponseRequest
	Variables []string          `json:"variables"` // the names in the template, sorted
	Metadata  map[string]string `json:"metadata"`
}

// A PromptReference asks for a Prompt, and says what its variables stand for: a
// string, or an input_text, input_image or input_file.
type PromptReference struct {
	ID        PromptID                   `json:"id"`
	Version   *string                    `json:"version"` // null is the newest
	Variables map[string]json.RawMessage `json:"variables,omitempty"`
}

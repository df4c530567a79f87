package berth

import "encoding/json"

// A Prompt is a stored template of a response request. The texts of its instructions
// and messages may contain variables, written {{name}}. Each change of the template
// creates a new version.
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

// A PromptReference selects a Prompt and sets its variables, each to a string or to an
// input_text, input_image or input_file.
type PromptReference struct {
	ID        PromptID                   `json:"id"`
	Version   *string                    `json:"version"` // null means the newest
	Variables map[string]json.RawMessage `json:"variables,omitempty"`
}

package berth

import "encoding/json"

// A TextEditorTool lets the model view, create and edit files of a container. The Messages API offers it beside the
// shell; requests of the Responses API cannot.
type TextEditorTool struct {
	Type        string                `json:"type"` // "text_editor"
	Environment *ShellToolEnvironment `json:"environment"`
}

// A TextEditorCall is one command of the text editor with its result.
type TextEditorCall struct {
	ID     string            `json:"id"`
	Type   ItemType          `json:"type"` // "text_editor_call"
	Status Status            `json:"status"`
	CallID string            `json:"call_id"`
	Input  json.RawMessage   `json:"input"` // an object, as the model wrote it
	Result *TextEditorResult `json:"result,omitempty"`
}

// A TextEditorResult is the result of a call. Which fields are set depends on the command.
type TextEditorResult struct {
	Error   string `json:"error,omitempty"` // a code of Anthropic's: invalid_tool_input, file_not_found or unavailable
	Message string `json:"message,omitempty"`

	FileType   string `json:"file_type,omitempty"` // of a view: text or image
	Content    string `json:"content,omitempty"`   // the lines, or the image in base64
	MediaType  string `json:"media_type,omitempty"`
	StartLine  int    `json:"start_line,omitempty"`
	NumLines   int    `json:"num_lines,omitempty"`
	TotalLines int    `json:"total_lines,omitempty"`

	Updated bool `json:"updated,omitempty"` // create has replaced a file

	OldStart int      `json:"old_start,omitempty"` // of str_replace: the first changed line
	OldLines int      `json:"old_lines,omitempty"`
	NewStart int      `json:"new_start,omitempty"`
	NewLines int      `json:"new_lines,omitempty"`
	Lines    []string `json:"lines,omitempty"` // the change, as a diff

	ContainerID ContainerID `json:"container_id,omitempty"`
}

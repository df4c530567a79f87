package berth

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// A Tool is an entry of a request's "tools". Like an Item, it holds its JSON with the
// most used fields decoded. Unknown types and fields are preserved.
type Tool struct {
	head toolHead
	raw  json.RawMessage
}

type toolHead struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// The types of tools that Berth knows.
const (
	ToolFunction   = "function"
	ToolCustom     = "custom"
	ToolShell      = "shell"
	ToolCode       = "code_interpreter"
	ToolLocalShell = "local_shell"
	ToolApplyPatch = "apply_patch"
	ToolNamespace  = "namespace"
	ToolSearch     = "tool_search"
	ToolFileSearch = "file_search"
	ToolWebSearch  = "web_search"
	ToolMCP        = "mcp"

	ToolImageGeneration = "image_generation"
	ToolProgrammatic    = "programmatic_tool_calling"
	ToolTextEditor      = "text_editor"
	ToolComputer        = "computer"
	ToolComputerPreview = "computer_use_preview"
)

// NewTool makes a Tool from a typed body, such as a FunctionTool. It panics if body
// does not marshal to a JSON object.
func NewTool(body any) Tool {
	raw, err := json.Marshal(body)
	var t Tool
	if err == nil {
		err = t.UnmarshalJSON(raw)
	}
	if err != nil {
		panic(err)
	}
	return t
}

func (t Tool) Type() string          { return t.head.Type }
func (t Tool) Name() string          { return t.head.Name }
func (t Tool) Raw() json.RawMessage  { return t.raw }
func (t Tool) Decode(body any) error { return json.Unmarshal(t.raw, body) }

func (t Tool) MarshalJSON() ([]byte, error) {
	if t.raw == nil {
		return []byte("null"), nil
	}
	return t.raw, nil
}

func (t *Tool) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] != '{' {
		return errors.New("a tool must be a JSON object")
	}
	var head toolHead
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	t.head, t.raw = head, bytes.Clone(b)
	return nil
}

// A FunctionTool is a function that the client runs: Berth returns the call to it.
type FunctionTool struct {
	Type        string          `json:"type"` // "function"
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON schema
	Strict      *bool           `json:"strict,omitempty"`     // nil means true

	OutputSchema json.RawMessage `json:"output_schema,omitempty"` // of the JSON that the function returns

	// Custom is the custom tool that the function replaces, under the function's name, or
	// nil. An upstream that has custom tools gets it in place of the function.
	Custom *CustomTool `json:"-"`

	// Native is the hosted tool that the function replaces, if the upstream has that tool
	// itself, or nil. The upstream gets it in place of the function.
	Native *Tool `json:"-"`

	// Hosted describes a function whose calls run in a container, or use a computer, or nil. A provider may
	// offer the vendor's own tool in its place and translate the calls and their outputs.
	Hosted *HostedFunction `json:"-"`
}

// A HostedFunction describes a function for providers whose vendor trains its models on another tool of
// the same purpose.
type HostedFunction struct {
	Type string // of the entry of "tools", such as "shell"

	// About returns what a model must know of the container or computer if the vendor's tool takes no
	// description; nil if such a tool takes the function's.
	About func() string

	Width, Height int // of the display of a computer in pixels; 0 if it is unknown
}

// A CustomTool is a tool that the client runs and whose input is text in its own format.
type CustomTool struct {
	Type        string        `json:"type"` // "custom"
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty"`
	Format      *CustomFormat `json:"format,omitempty"` // nil means any text
}

// A CustomFormat is "text", which allows any text, or a "grammar".
type CustomFormat struct {
	Type       string `json:"type"`
	Syntax     string `json:"syntax,omitempty"` // of a grammar: lark or regex
	Definition string `json:"definition,omitempty"`
}

// A ToolSearchTool lets the model search for tools that it has not seen yet.
type ToolSearchTool struct {
	Type        string          `json:"type"`      // "tool_search"
	Execution   string          `json:"execution"` // "client", or "server", the default
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON schema
}

// A NamespaceTool is a group of functions and custom tools under one name.
type NamespaceTool struct {
	Type        string `json:"type"` // "namespace"
	Name        string `json:"name"`
	Description string `json:"description"`
	Tools       []Tool `json:"tools"`
}

// A ShellTool lets the model run commands.
type ShellTool struct {
	Type        string                `json:"type"` // "shell"
	Environment *ShellToolEnvironment `json:"environment,omitempty"`
}

// The types of a ShellToolEnvironment.
const (
	EnvironmentAuto      = "container_auto"      // use the chain's container, or create one
	EnvironmentReference = "container_reference" // use this container
	EnvironmentLocal     = "local"               // the client runs the commands itself
)

// A ShellToolEnvironment is the place where a shell's commands run.
type ShellToolEnvironment struct {
	Type          string         `json:"type"`
	ContainerID   ContainerID    `json:"container_id,omitempty"`   // container_reference
	FileIDs       []FileID       `json:"file_ids,omitempty"`       // container_auto: copied to /mnt/data
	MemoryLimit   string         `json:"memory_limit,omitempty"`   // container_auto: 1g, 4g, 16g or 64g
	NetworkPolicy *NetworkPolicy `json:"network_policy,omitempty"` // container_auto
	// container_auto: of SkillParam; local: of LocalSkill
	Skills json.RawMessage `json:"skills,omitempty"`

	Berth *ContainerSource `json:"berth,omitempty"` // container_auto
}

// Bare reports whether the environment is a new container without any setting.
func (e ShellToolEnvironment) Bare() bool {
	skills := strings.TrimSpace(string(e.Skills))
	return e.Type == EnvironmentAuto && e.ContainerID == "" && len(e.FileIDs) == 0 && e.MemoryLimit == "" &&
		e.NetworkPolicy == nil &&
		(skills == "" || skills == "null" || skills == "[]") && e.Berth == nil
}

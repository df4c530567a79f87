package berth

import "encoding/json"

// An MCPTool lets the model use the tools of a server that speaks the Model Context
// Protocol: a remote one, or a command that runs in a container.
type MCPTool struct {
	Type              string            `json:"type"` // "mcp"
	ServerLabel       string            `json:"server_label"`
	ServerURL         string            `json:"server_url,omitempty"`
	ServerDescription string            `json:"server_description,omitempty"`
	Authorization     string            `json:"authorization,omitempty"` // an OAuth access token; never stored
	Headers           map[string]string `json:"headers,omitempty"`       // never stored
	AllowedTools      *MCPToolFilter    `json:"allowed_tools,omitempty"`
	RequireApproval   *MCPApproval      `json:"require_approval,omitempty"`
	Berth             *MCPToolBerth     `json:"berth,omitempty"`
}

// MCPToolBerth extends OpenAI's MCP tool.
type MCPToolBerth struct {
	// of a server that speaks over stdio in a container
	Command     []string              `json:"command,omitempty"`
	Environment *ShellToolEnvironment `json:"environment,omitempty"` // of Command; nil is container_auto
	Credentials string                `json:"credentials,omitempty"` // CredentialsNotStored, in answers
}

// CredentialsNotStored replaces the headers, the authorization and the query of the URL
// that a request had.
const CredentialsNotStored = "not_stored"

// An MCPToolFilter selects tools of a server. Its JSON is a list of names, or
// {"tool_names":[…],"read_only":true}.
type MCPToolFilter struct {
	ToolNames []string `json:"tool_names,omitempty"` // nil selects all names
	ReadOnly  *bool    `json:"read_only,omitempty"`  // what the server says of the tool
}

// Selects reports whether a filter selects a tool. A nil filter selects all.
func (f *MCPToolFilter) Selects(t MCPListedTool) bool {
	if f == nil {
		return true
	}
	if f.ReadOnly != nil && *f.ReadOnly != t.ReadOnly() {
		return false
	}
	if f.ToolNames == nil {
		return true
	}
	for _, name := range f.ToolNames {
		if name == t.Name {
			return true
		}
	}
	return false
}

// UnmarshalJSON reads a list of names or an object.
func (f *MCPToolFilter) UnmarshalJSON(b []byte) error {
	*f = MCPToolFilter{}
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, &f.ToolNames)
	}
	type plain MCPToolFilter
	return json.Unmarshal(b, (*plain)(f))
}

// An MCPApproval selects the tools whose calls wait for the client's approval. Its JSON is
// "always", "never", or a filter for each.
type MCPApproval struct {
	Mode   string // "always", "never", or empty if there are filters
	Always *MCPToolFilter
	Never  *MCPToolFilter
}

// Requires reports whether the calls of a tool wait for approval. Without a policy all do.
// With filters a tool waits if Always selects it, or if there is a Never filter that does
// not select it.
func (a *MCPApproval) Requires(t MCPListedTool) bool {
	switch {
	case a == nil || a.Mode == "always":
		return true
	case a.Mode == "never":
		return false
	case a.Always != nil && a.Always.Selects(t):
		return true
	case a.Never != nil:
		return !a.Never.Selects(t)
	}
	return a.Always == nil
}

// UnmarshalJSON reads a mode or filters.
func (a *MCPApproval) UnmarshalJSON(b []byte) error {
	*a = MCPApproval{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &a.Mode)
	}
	var filters struct{ Always, Never *MCPToolFilter }
	err := json.Unmarshal(b, &filters)
	a.Always, a.Never = filters.Always, filters.Never
	return err
}

// An MCPListTools is the list of tools that a server has offered.
type MCPListTools struct {
	ID          string          `json:"id"`
	Type        ItemType        `json:"type"` // "mcp_list_tools"
	ServerLabel string          `json:"server_label"`
	Tools       []MCPListedTool `json:"tools"`
	Error       *string         `json:"error,omitempty"`
	Berth       *MCPListBerth   `json:"berth,omitempty"`
}

// MCPListBerth extends OpenAI's list of tools with the "allowed_tools" that shortened it.
type MCPListBerth struct {
	AllowedTools *MCPToolFilter `json:"allowed_tools"`
}

// An MCPListedTool is one tool of a server.
type MCPListedTool struct {
	Annotations *MCPAnnotations `json:"annotations"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"` // a JSON schema of an object
	Name        string          `json:"name"`
}

// MCPAnnotations are what a server says of a tool. It may lie.
type MCPAnnotations struct {
	ReadOnly bool `json:"read_only"`
}

// ReadOnly reports whether the server says that the tool changes nothing.
func (t MCPListedTool) ReadOnly() bool { return t.Annotations != nil && t.Annotations.ReadOnly }

// An MCPCall is a call of a server's tool, with its output.
type MCPCall struct {
	ID                string    `json:"id"`
	Type              ItemType  `json:"type"` // "mcp_call"
	Status            Status    `json:"status"`
	ApprovalRequestID *string   `json:"approval_request_id"`
	Arguments         string    `json:"arguments"` // JSON as the model wrote it
	Error             *MCPError `json:"error"`
	Name              string    `json:"name"` // of the tool
	Output            *string   `json:"output"`
	ServerLabel       string    `json:"server_label"`
}

// The types of an MCPError.
const (
	MCPProtocolError  = "mcp_protocol_error"       // Code is that of JSON-RPC
	MCPExecutionError = "mcp_tool_execution_error" // Content is what the tool returned
	MCPHTTPError      = "http_error"               // Code is the HTTP status
)

// An MCPError is why a call failed.
type MCPError struct {
	Type    string          `json:"type"`
	Code    *int            `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Content json.RawMessage `json:"content,omitempty"`
}

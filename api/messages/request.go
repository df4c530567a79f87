package messages

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
)

// A messageRequest is the body of POST /v1/messages. Nil pointers and empty raw messages mean that the client omitted
// the field.
type messageRequest struct {
	Model         string       `json:"model"`
	Messages      []turn       `json:"messages"`
	System        blocks       `json:"system"`
	MaxTokens     *int         `json:"max_tokens"`
	Tools         []toolParam  `json:"tools"`
	ToolChoice    *toolChoice  `json:"tool_choice"`
	MCPServers    []serverMCP  `json:"mcp_servers"`
	Container     containerRef `json:"container"`
	StopSequences []string     `json:"stop_sequences"`
	Stream        bool         `json:"stream"`
	Temperature   *float64     `json:"temperature"`
	TopP          *float64     `json:"top_p"`
	ServiceTier   string       `json:"service_tier"`
	Thinking      *thinking    `json:"thinking"`
	Thread        struct {
		Type string `json:"type"`
	} `json:"thread"`
	OutputConfig struct {
		Effort string  `json:"effort"`
		Format *format `json:"format"`
	} `json:"output_config"`
	OutputFormat      *format            `json:"output_format"` // the former place of output_config.format
	ContextManagement *contextManagement `json:"context_management"`
	Metadata          struct {
		UserID *string `json:"user_id"`
	} `json:"metadata"`

	applied []any // what the edits of the context have cleared
}

type thinking struct {
	Type         string `json:"type"` // enabled, adaptive or disabled
	BudgetTokens int    `json:"budget_tokens"`
	Display      string `json:"display"`
}

type format struct {
	Type   string          `json:"type"`
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// A turn is an entry of "messages".
type turn struct {
	Role    string `json:"role"`
	Content blocks `json:"content"`
}

// blocks are the content of a message. Its short form is a string.
type blocks []contentBlock

func (b *blocks) UnmarshalJSON(raw []byte) error {
	*b = nil
	if raw[0] != '"' {
		return json.Unmarshal(raw, (*[]contentBlock)(b))
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	*b = blocks{{Type: "text", Text: text}}
	return nil
}

// A contentBlock is a block of any type. Which fields are set depends on the type.
type contentBlock struct {
	Type       string          `json:"type"`
	Text       string          `json:"text"`
	Source     json.RawMessage `json:"source"` // a source, or the text of a search_result's
	Title      string          `json:"title"`
	Context    string          `json:"context"`
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Input      json.RawMessage `json:"input"`
	ServerName string          `json:"server_name"`
	ToolUseID  string          `json:"tool_use_id"`
	ToolName   string          `json:"tool_name"`
	Content    json.RawMessage `json:"content"` // blocks, or an object with the result of a server tool
	IsError    bool            `json:"is_error"`
	Thinking   string          `json:"thinking"`
	Signature  string          `json:"signature"`
	Data       string          `json:"data"`
	FileID     string          `json:"file_id"`
	Caller     caller          `json:"caller"`
	Encrypted  string          `json:"encrypted_content"`
}

// A source is the content of an image or a document.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
	FileID    string `json:"file_id"`
	Content   blocks `json:"content"`
}

// A containerRef is the value of "container".
type containerRef struct {
	ID     string `json:"id"`
	Skills []struct {
		Type    string `json:"type"`
		SkillID string `json:"skill_id"`
		Version string `json:"version"`
	} `json:"skills"`
}

func (c *containerRef) UnmarshalJSON(raw []byte) error {
	*c = containerRef{}
	if raw[0] == '"' {
		return json.Unmarshal(raw, &c.ID)
	}
	type plain containerRef
	return json.Unmarshal(raw, (*plain)(c))
}

// text returns the text of all blocks.
func (b blocks) text(between string) string {
	var texts []string
	for _, each := range b {
		if each.Text != "" {
			texts = append(texts, each.Text)
		}
	}
	return strings.Join(texts, between)
}

// thinks reports whether the answer has the model's thoughts. Clients that do not ask for them expect text first.
func (m *messageRequest) thinks() bool { return m.Thinking != nil && m.Thinking.Type != "disabled" }

// A toolParam is an entry of "tools". Which fields are set depends on the type.
type toolParam struct {
	Type           string                   `json:"type"`
	Name           string                   `json:"name"`
	Description    string                   `json:"description"`
	InputSchema    json.RawMessage          `json:"input_schema"`
	InputExamples  []json.RawMessage        `json:"input_examples"`
	Strict         *bool                    `json:"strict"`
	MaxUses        *int                     `json:"max_uses"`
	Defer          bool                     `json:"defer_loading"`
	AllowedCallers []string                 `json:"allowed_callers"`
	AllowedDomains []string                 `json:"allowed_domains"`
	BlockedDomains []string                 `json:"blocked_domains"`
	UserLocation   *berth.WebSearchLocation `json:"user_location"`
	Width          int                      `json:"display_width_px"`
	Height         int                      `json:"display_height_px"`
	MCPServerName  string                   `json:"mcp_server_name"`
	DefaultConfig  toolConfig               `json:"default_config"`
	Configs        map[string]toolConfig    `json:"configs"`
}

type toolConfig struct {
	Enabled *bool `json:"enabled"`
}

// A serverMCP is an entry of "mcp_servers".
type serverMCP struct {
	Name          string `json:"name"`
	URL           string `json:"url"`
	Authorization string `json:"authorization_token"`
	Configuration *struct {
		Enabled      *bool    `json:"enabled"`
		AllowedTools []string `json:"allowed_tools"`
	} `json:"tool_configuration"`
}

type toolChoice struct {
	Type            string `json:"type"` // auto, any, none or tool
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

// The families of tools with a type, which is the family and a date.
const (
	familyCustom  = "custom"
	familySearch  = "web_search"
	familyFetch   = "web_fetch"
	familyCode    = "code_execution"
	familyToolset = "mcp_toolset"
)

// dated matches the date of a type.
var dated = regexp.MustCompile(`_20[0-9]{6}$`)

// family returns the family of a tool.
func (t *toolParam) family() string {
	if t.Type == "" {
		return familyCustom
	}
	return dated.ReplaceAllString(t.Type, "")
}

package anthropic

import "encoding/json"

// A request is the body of POST /v1/messages. The SDK's own types are not used: they
// take seven times as long for a long conversation and five times as long for a token.
// Its client is used, and tests validate requests with its types.
type request struct {
	Model         string        `json:"model"`
	MaxTokens     int           `json:"max_tokens"`
	System        []block       `json:"system,omitempty"`
	Messages      []message     `json:"messages"`
	Tools         []tool        `json:"tools,omitempty"`
	ToolChoice    *toolChoice   `json:"tool_choice,omitempty"`
	Thinking      *thinking     `json:"thinking,omitempty"`
	OutputConfig  *outputConfig `json:"output_config,omitempty"`
	Temperature   *float64      `json:"temperature,omitempty"`
	TopP          *float64      `json:"top_p,omitempty"`
	StopSequences []string      `json:"stop_sequences,omitempty"`
	Metadata      *metadata     `json:"metadata,omitempty"`
	Stream        bool          `json:"stream"`

	textTool string      // the tool whose arguments are the answer's text, if any
	vendor   vendorTools // in place of functions
	about    string      // the container of these tools
}

type message struct {
	Role    string  `json:"role"` // user or assistant
	Content []block `json:"content"`
}

// A block is a content block of any type.
type block struct {
	Type string `json:"type"`

	Text string `json:"text,omitempty"` // text

	Source *source `json:"source,omitempty"` // image, document
	Title  string  `json:"title,omitempty"`  // document

	ID    string          `json:"id,omitempty"` // tool_use
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`

	ToolUseID string `json:"tool_use_id,omitempty"` // tool_result
	Content   any    `json:"content,omitempty"`     // string or []block
	IsError   bool   `json:"is_error,omitempty"`

	Thinking  *string `json:"thinking,omitempty"` // thinking; empty if the vendor hides it
	Signature string  `json:"signature,omitempty"`
	Data      string  `json:"data,omitempty"` // redacted_thinking

	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type source struct {
	Type      string `json:"type"` // base64, url or text
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

type cacheControl struct {
	Type string `json:"type"` // ephemeral
	TTL  string `json:"ttl,omitempty"`
}

type tool struct {
	Type        string          `json:"type,omitempty"` // of a tool of Anthropic, which has no schema
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`

	DisplayWidth  int `json:"display_width_px,omitempty"` // of a computer
	DisplayHeight int `json:"display_height_px,omitempty"`

	Strict       bool          `json:"strict,omitempty"`
	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type toolChoice struct {
	Type            string `json:"type"` // auto, any, tool or none
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

type thinking struct {
	Type         string   `json:"type"` // enabled, adaptive or disabled
	BudgetTokens int      `json:"budget_tokens,omitempty"`
	Display      string   `json:"display,omitempty"` // summarized
	Binding      *binding `json:"block_binding,omitempty"`
}

// betaBinding names the beta that a binding needs.
const betaBinding = "thinking-binding-controls-2026-08-01"

// A binding states what happens to thoughts after a change of what precedes them:
// instructions and tools may change with each response of a chain.
type binding struct {
	PrefixMismatchBehavior string `json:"prefix_mismatch_behavior"` // drop_block
}

type outputConfig struct {
	Effort string        `json:"effort,omitempty"`
	Format *outputFormat `json:"format,omitempty"`
}

type outputFormat struct {
	Type   string          `json:"type"` // json_schema
	Schema json.RawMessage `json:"schema"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

// An event is an event of the stream. It has only the fields that are used, so that
// others cannot make it invalid.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		PartialJSON string `json:"partial_json"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`

		StopReason   string `json:"stop_reason"` // of message_delta
		StopSequence string `json:"stop_sequence"`
		StopDetails  struct {
			Explanation string `json:"explanation"`
		} `json:"stop_details"`
	} `json:"delta"`
	Usage usage `json:"usage"` // of message_delta; cumulative
}

// essential holds the fields of an event that carry the answer.
type essential struct {
	Type         string `json:"type"`
	Index        int    `json:"index"`
	ContentBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Name string `json:"name"`
	} `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
}

type usage struct {
	InputTokens   int `json:"input_tokens"` // neither read from the cache nor written to it
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	OutputTokens  int `json:"output_tokens"`
	OutputDetails struct {
		ThinkingTokens int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

package chat

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
)

// A request is the body of POST /chat/completions. It omits what the client did not
// set: most upstreams know only some of the parameters. The SDK's own types are not
// used: they take three times as long for a token and for a long conversation, and
// fail on unusual but harmless input.
type request struct {
	Model               string          `json:"-"` // as model: see AppendJSON
	Messages            []message       `json:"-"` // as messages
	Stream              bool            `json:"stream"`
	StreamOptions       streamOptions   `json:"stream_options"`
	Tools               []tool          `json:"tools,omitempty"`
	ToolChoice          any             `json:"tool_choice,omitempty"` // "none", "required" or a namedTool
	ParallelToolCalls   *bool           `json:"parallel_tool_calls,omitempty"`
	MaxTokens           int             `json:"max_tokens,omitempty"`
	MaxCompletionTokens int             `json:"max_completion_tokens,omitempty"`
	Temperature         *float64        `json:"temperature,omitempty"`
	TopP                *float64        `json:"top_p,omitempty"`
	Logprobs            bool            `json:"logprobs,omitempty"`
	TopLogprobs         *int            `json:"top_logprobs,omitempty"`
	ResponseFormat      *responseFormat `json:"response_format,omitempty"`
	ReasoningEffort     *string         `json:"reasoning_effort,omitempty"`
	Verbosity           string          `json:"verbosity,omitempty"`
	User                string          `json:"user,omitempty"`
	ServiceTier         string          `json:"service_tier,omitempty"`
	berth.Sampling
	hints
}

// hints holds fields that some upstreams ignore and some refuse as unknown.
type hints struct {
	PromptCacheKey       string `json:"prompt_cache_key,omitempty"`
	PromptCacheRetention string `json:"prompt_cache_retention,omitempty"`
	SafetyIdentifier     string `json:"safety_identifier,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// A message is a message of any role. Content is null only beside calls.
type message struct {
	Role             string     `json:"role"`
	Content          any        `json:"content"` // string, []part or nil
	Name             string     `json:"name,omitempty"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	Reasoning        string     `json:"reasoning,omitempty"`
	ToolCalls        []toolCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitempty"`
}

type part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
	File     *file     `json:"file,omitempty"`
}

type imageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

type file struct {
	Filename string `json:"filename"`
	FileData string `json:"file_data"`
}

type toolCall struct {
	ID       string        `json:"id"`
	Type     string        `json:"type"` // "function" or "custom"
	Function *functionCall `json:"function,omitempty"`
	Custom   *customCall   `json:"custom,omitempty"`
}

type customCall struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string      `json:"type"` // "function" or "custom"
	Function *function   `json:"function,omitempty"`
	Custom   *customTool `json:"custom,omitempty"`
}

type customTool struct {
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty"`
	Format      *customFormat `json:"format,omitempty"`
}

// A customFormat has a level more than that of Responses.
type customFormat struct {
	Type    string         `json:"type"` // "text" or "grammar"
	Grammar *customGrammar `json:"grammar,omitempty"`
}

type customGrammar struct {
	Definition string `json:"definition"`
	Syntax     string `json:"syntax"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict,omitempty"`
}

type namedTool struct {
	Type     string    `json:"type"` // "function" or "custom"
	Function *toolName `json:"function,omitempty"`
	Custom   *toolName `json:"custom,omitempty"`
}

type toolName struct {
	Name string `json:"name"`
}

type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *jsonSchema `json:"json_schema,omitempty"`
}

type jsonSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// A chunk is an event of the stream, or a whole answer that is not streamed. It has
// only the fields that are used, so that others cannot make it invalid.
type chunk struct {
	Model       string          `json:"model"`
	ServiceTier string          `json:"service_tier"`
	Choices     []choice        `json:"choices"`
	Usage       *usage          `json:"usage"`
	Error       json.RawMessage `json:"error"`
}

type choice struct {
	Index        int       `json:"index"`
	Delta        *output   `json:"delta"`
	Message      *output   `json:"message"` // in place of delta, if the answer is not streamed
	FinishReason string    `json:"finish_reason"`
	Logprobs     *logprobs `json:"logprobs"`

	// The stop sequence of vLLM and of SGLang, if it is a text. It may also be the number of a token.
	StopReason  any `json:"stop_reason"`
	MatchedStop any `json:"matched_stop"`
}

// essential holds the fields of a chunk that carry the answer.
type essential struct {
	Choices []struct {
		Delta        *essentialOutput `json:"delta"`
		Message      *essentialOutput `json:"message"`
		FinishReason string           `json:"finish_reason"`
	} `json:"choices"`
}

type essentialOutput struct {
	Content   content `json:"content"`
	ToolCalls []struct {
		Function pieceBody   `json:"function"`
		Custom   *customCall `json:"custom"`
	} `json:"tool_calls"`
	FunctionCall *pieceBody `json:"function_call"`
}

// output is the part of an answer in a chunk. Servers other than OpenAI's send
// reasoning in one of two fields.
type output struct {
	Content          content    `json:"content"`
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"`
	Refusal          string     `json:"refusal"`
	ToolCalls        []piece    `json:"tool_calls"`
	FunctionCall     *pieceBody `json:"function_call"` // the predecessor of tool_calls
}

// A piece is a part of a call.
type piece struct {
	Index    *int        `json:"index"`
	ID       string      `json:"id"`
	Function pieceBody   `json:"function"`
	Custom   *customCall `json:"custom"` // in place of Function
}

type pieceBody struct {
	Name      string    `json:"name"`
	Arguments arguments `json:"arguments"`
}

type logprobs struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	topLogprob
	TopLogprobs []topLogprob `json:"top_logprobs"`
}

// usage has two fields for cached tokens. The second is DeepSeek's.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	PromptCacheHitTokens int `json:"prompt_cache_hit_tokens"`
	CompletionDetails    struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// content is a string, null, or Mistral's list of parts. Some parts hold reasoning.
type content struct {
	text, thought string
}

func (c *content) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		return json.Unmarshal(b, &c.text)
	}
	var parts []struct {
		Text     string `json:"text"`
		Thinking []struct {
			Text string `json:"text"`
		} `json:"thinking"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	var text, thought strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
		for _, t := range p.Thinking {
			thought.WriteString(t.Text)
		}
	}
	c.text, c.thought = text.String(), thought.String()
	return nil
}

// arguments are a string or null. Some servers send the object itself instead.
type arguments string

func (a *arguments) UnmarshalJSON(b []byte) error {
	if b[0] == '"' || bytes.Equal(b, []byte("null")) {
		return json.Unmarshal(b, (*string)(a))
	}
	*a = arguments(b)
	return nil
}

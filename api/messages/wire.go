package messages

import (
	"encoding/json"

	"github.com/berth-run/berth"
)

// A message is an answer, whole or at the start of a stream.
type wholeMessage struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"` // "message"
	Role         string          `json:"role"` // "assistant"
	Model        string          `json:"model"`
	Content      []any           `json:"content"`
	StopReason   *string         `json:"stop_reason"` // null at the start of a stream
	StopSequence *string         `json:"stop_sequence"`
	StopDetails  *stopDetails    `json:"stop_details"`
	Usage        messageUsage    `json:"usage"`
	Container    *containerInfo  `json:"container"`
	Diagnostics  json.RawMessage `json:"diagnostics"` // null
	Context      *contextApplied `json:"context_management,omitempty"`
}

// stopDetails say why a model declined.
type stopDetails struct {
	Type        string  `json:"type"` // "refusal"
	Category    *string `json:"category"`
	Explanation *string `json:"explanation"`
}

// containerInfo is the container in which the server tools of a message ran.
type containerInfo struct {
	ID        berth.ContainerID `json:"id"`
	ExpiresAt string            `json:"expires_at"`
	Skills    []usedSkill       `json:"skills"`
}

type usedSkill struct {
	Type    string        `json:"type"` // "custom"
	SkillID berth.SkillID `json:"skill_id"`
	Version string        `json:"version"`
}

// messageUsage counts tokens and the calls of server tools.
type messageUsage struct {
	InputTokens   int              `json:"input_tokens"` // neither read from a cache nor written to it
	CacheCreation int              `json:"cache_creation_input_tokens"`
	CacheRead     int              `json:"cache_read_input_tokens"`
	OutputTokens  int              `json:"output_tokens"`
	OutputDetails *outputDetails   `json:"output_tokens_details"`
	ServerToolUse *serverToolUsage `json:"server_tool_use"` // null if no server tool was used

	// of each call of the model, if there were several or one was a compaction
	Iterations []iterationUsage `json:"iterations,omitempty"`

	*tierUsage // absent from message_delta
}

// iterationUsage counts the tokens of one call of the model.
type iterationUsage struct {
	Type             string        `json:"type"`            // "message" or "compaction"
	Model            string        `json:"model,omitempty"` // of a message, as the client named it
	InputTokens      int           `json:"input_tokens"`
	OutputTokens     int           `json:"output_tokens"`
	CacheCreation    int           `json:"cache_creation_input_tokens"`
	CacheRead        int           `json:"cache_read_input_tokens"`
	CacheCreationTTL cacheCreation `json:"cache_creation"`
}

type outputDetails struct {
	ThinkingTokens int `json:"thinking_tokens"`
}

type serverToolUsage struct {
	WebSearches int `json:"web_search_requests"`
	WebFetches  int `json:"web_fetch_requests"`
}

type tierUsage struct {
	ServiceTier   string        `json:"service_tier"`
	CacheCreation cacheCreation `json:"cache_creation"`
	Geo           *string       `json:"inference_geo"`
}

type cacheCreation struct {
	Hour    int `json:"ephemeral_1h_input_tokens"`
	Minutes int `json:"ephemeral_5m_input_tokens"`
}

// newUsage converts the usage of a response.
func newUsage(u berth.Usage) messageUsage {
	in := u.InputTokenDetails
	return messageUsage{InputTokens: max(0, u.InputTokens-in.CachedTokens-in.CacheWriteTokens),
		CacheCreation: in.CacheWriteTokens, CacheRead: in.CachedTokens, OutputTokens: u.OutputTokens,
		OutputDetails: &outputDetails{u.OutputTokenDetails.ReasoningTokens}}
}

// usageOf returns the usage of a message, which leaves out that of compactions, and of each call of the
// model, which the client called name, if there were several or one was a compaction.
func usageOf(name string, r *berth.Response) (whole berth.Usage, each []iterationUsage) {
	if r.Usage == nil {
		return berth.Usage{}, nil
	}
	whole = *r.Usage
	if r.Berth == nil {
		return whole, nil
	}
	compacted := false
	for _, t := range r.Berth.Timings {
		if t.Type == berth.TimingTool || t.Usage == nil {
			continue
		}
		kind, by := "message", name
		if t.Type == berth.TimingCompaction {
			kind, by, compacted = "compaction", "", true
			whole = without(whole, *t.Usage)
		}
		u := newUsage(*t.Usage)
		each = append(each, iterationUsage{Type: kind, Model: by, InputTokens: u.InputTokens,
			OutputTokens:  u.OutputTokens,
			CacheCreation: u.CacheCreation, CacheRead: u.CacheRead,
			CacheCreationTTL: cacheCreation{Minutes: u.CacheCreation}})
	}
	if len(each) < 2 && !compacted {
		return whole, nil
	}
	return whole, each
}

// without returns a usage without a part of it.
func without(u, part berth.Usage) berth.Usage {
	u.InputTokens -= part.InputTokens
	u.InputTokenDetails.CacheWriteTokens -= part.InputTokenDetails.CacheWriteTokens
	u.InputTokenDetails.CachedTokens -= part.InputTokenDetails.CachedTokens
	u.OutputTokens -= part.OutputTokens
	u.OutputTokenDetails.ReasoningTokens -= part.OutputTokenDetails.ReasoningTokens
	return u
}

// contextApplied reports the edits of "context_management" that changed the request.
type contextApplied struct {
	AppliedEdits        *[]any `json:"applied_edits,omitempty"`
	OriginalInputTokens *int   `json:"original_input_tokens,omitempty"`
}

// The blocks of an answer.
type (
	textOutput struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Citations []any  `json:"citations"` // null if there are none
	}
	thinkingOutput struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	redactedOutput struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}
	// of tool_use, server_tool_use and mcp_tool_use
	callOutput struct {
		Type       string          `json:"type"`
		ID         string          `json:"id"`
		Name       string          `json:"name"`
		ServerName string          `json:"server_name,omitempty"`
		Input      json.RawMessage `json:"input"`
		Caller     *caller         `json:"caller,omitempty"`
	}
	caller struct {
		Type   string `json:"type"`              // direct, or the version of code_execution
		ToolID string `json:"tool_id,omitempty"` // of a call by a program
	}
	// of the results of server tools
	resultOutput struct {
		Type      string  `json:"type"`
		ToolUseID string  `json:"tool_use_id"`
		IsError   *bool   `json:"is_error,omitempty"` // of mcp_tool_result
		Content   any     `json:"content"`
		Caller    *caller `json:"caller,omitempty"`
	}
)

// The deltas of a stream.
type (
	textDelta struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinkingDelta struct {
		Type     string `json:"type"`
		Thinking string `json:"thinking"`
	}
	signatureDelta struct {
		Type      string `json:"type"`
		Signature string `json:"signature"`
	}
	inputDelta struct {
		Type        string `json:"type"`
		PartialJSON string `json:"partial_json"`
	}
	citationsDelta struct {
		Type     string `json:"type"`
		Citation any    `json:"citation"`
	}
)

// The events of a stream.
type (
	messageStart struct {
		Type    string       `json:"type"`
		Message wholeMessage `json:"message"`
	}
	blockStart struct {
		Type         string `json:"type"`
		Index        int    `json:"index"`
		ContentBlock any    `json:"content_block"`
	}
	blockDelta struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta any    `json:"delta"`
	}
	blockStop struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	messageDelta struct {
		Type    string          `json:"type"`
		Delta   messageEnd      `json:"delta"`
		Usage   messageUsage    `json:"usage"`
		Context *contextApplied `json:"context_management,omitempty"`
	}
	messageEnd struct {
		StopReason   *string        `json:"stop_reason"`
		StopSequence *string        `json:"stop_sequence"`
		StopDetails  *stopDetails   `json:"stop_details"`
		Container    *containerInfo `json:"container"`
	}
	bare struct {
		Type string `json:"type"`
	}
)

// webCitation cites a page that a search found.
type webCitation struct {
	Type           string `json:"type"` // "web_search_result_location"
	CitedText      string `json:"cited_text"`
	URL            string `json:"url"`
	Title          string `json:"title"`
	EncryptedIndex string `json:"encrypted_index"`
}

package chat

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// A completion is the answer of a request that is not streamed.
type completion struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"` // "chat.completion"
	Created           int64             `json:"created"`
	Model             string            `json:"model"`
	Choices           []wholeChoice     `json:"choices"`
	Usage             completionUsage   `json:"usage"`
	ServiceTier       string            `json:"service_tier"`
	SystemFingerprint string            `json:"system_fingerprint"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	Moderation        *moderation       `json:"moderation,omitempty"`
}

type wholeChoice struct {
	Index        int               `json:"index"`
	Message      completionAnswer  `json:"message"`
	Logprobs     *choiceLogprobs   `json:"logprobs"`
	FinishReason string            `json:"finish_reason"`
	Berth        *choiceExtensions `json:"berth,omitempty"`
}

// A completionAnswer is the message of a choice.
type completionAnswer struct {
	Role             string           `json:"role"`
	Content          *string          `json:"content"`
	ReasoningContent string           `json:"reasoning_content,omitempty"`
	ToolCalls        []completionCall `json:"tool_calls,omitempty"`
	FunctionCall     *calledFunction  `json:"function_call,omitempty"`
	Refusal          *string          `json:"refusal"`
	Annotations      []annotation     `json:"annotations"`
}

// choiceExtensions extend OpenAI's choice with the container of its shell, which the next
// request can use in a container_reference.
type choiceExtensions struct {
	ContainerID berth.ContainerID `json:"container_id"`
}

type choiceLogprobs struct {
	Content []json.RawMessage `json:"content"`
	Refusal []json.RawMessage `json:"refusal"`
}

// A citation is an annotation of output text in the Responses API; an annotation is the
// same in Chat Completions.
type citation struct {
	Type  string `json:"type"`
	URL   string `json:"url"`
	Title string `json:"title"`
	Start int    `json:"start_index"`
	End   int    `json:"end_index"`
}

type annotation struct {
	Type string `json:"type"` // "url_citation"
	URL  struct {
		End   int    `json:"end_index"`
		Start int    `json:"start_index"`
		Title string `json:"title"`
		URL   string `json:"url"`
	} `json:"url_citation"`
}

type completionUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
		AudioTokens  int `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens          int `json:"reasoning_tokens"`
		AudioTokens              int `json:"audio_tokens"`
		AcceptedPredictionTokens int `json:"accepted_prediction_tokens"`
		RejectedPredictionTokens int `json:"rejected_prediction_tokens"`
	} `json:"completion_tokens_details"`
}

func newCompletionUsage(u berth.Usage) completionUsage {
	out := completionUsage{PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.TotalTokens}
	out.PromptDetails.CachedTokens = u.InputTokenDetails.CachedTokens
	out.CompletionDetails.ReasoningTokens = u.OutputTokenDetails.ReasoningTokens
	return out
}

// whole returns the complete choice. It must have ended.
func (c *completionChoice) whole() wholeChoice {
	answer := completionAnswer{Role: "assistant", ReasoningContent: c.text(pieceThought), Annotations: c.annotations()}
	text, refusal := c.text(pieceText), c.text(pieceRefusal)
	for _, p := range c.calls() {
		call := p.call
		if call.Custom != nil {
			call.Custom = &calledCustom{Name: call.Custom.Name, Input: p.words.String()}
		} else {
			call.Function = &calledFunction{Name: call.Function.Name, Arguments: p.words.String()}
		}
		if c.request.legacy() {
			answer.FunctionCall = call.Function
		} else {
			answer.ToolCalls = append(answer.ToolCalls, call)
		}
	}
	if text != "" || refusal == "" && answer.FunctionCall == nil && answer.ToolCalls == nil {
		answer.Content = &text
	}
	if refusal != "" {
		answer.Refusal = &refusal
	}
	return wholeChoice{Index: c.index, Message: answer, Logprobs: newChoiceLogprobs(c.logprobs()),
		FinishReason: c.finish, Berth: c.extensions()}
}

func (c *completionChoice) extensions() *choiceExtensions {
	if c.container == "" {
		return nil
	}
	return &choiceExtensions{ContainerID: c.container}
}

func (c *completionChoice) logprobs() []json.RawMessage {
	var all []json.RawMessage
	for _, p := range c.pieces {
		if p.kind == pieceText {
			all = append(all, p.logprobs...)
		}
	}
	return all
}

func newChoiceLogprobs(content []json.RawMessage) *choiceLogprobs {
	if len(content) == 0 {
		return nil
	}
	return &choiceLogprobs{Content: content}
}

// annotations returns the citations of all pieces. Their indexes count in the whole text.
func (c *completionChoice) annotations() []annotation {
	all, offset := []annotation{}, 0
	for _, p := range c.pieces {
		if p.kind != pieceText || p.words.Len() == 0 {
			continue
		}
		offset += len(c.gap(p))
		for _, cited := range p.citations {
			a := annotation{Type: cited.Type}
			a.URL.URL, a.URL.Title = cited.URL, cited.Title
			a.URL.Start, a.URL.End = offset+cited.Start, offset+cited.End
			all = append(all, a)
		}
		offset += utf8.RuneCountInString(p.words.String())
	}
	return all
}

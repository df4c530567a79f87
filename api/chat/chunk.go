package chat

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// A completionChunk is one event of a completion's stream.
type completionChunk struct {
	ID                string        `json:"id"`
	Object            string        `json:"object"` // "chat.completion.chunk"
	Created           int64         `json:"created"`
	Model             string        `json:"model"`
	ServiceTier       string        `json:"service_tier"`
	SystemFingerprint string        `json:"system_fingerprint"`
	Choices           []chunkChoice `json:"choices"`
	// absent without include_usage; null except in the last chunk
	Usage       json.RawMessage `json:"usage,omitempty"`
	Moderation  *moderation     `json:"moderation,omitempty"`
	Obfuscation string          `json:"obfuscation,omitempty"`
}

type chunkChoice struct {
	Index        int               `json:"index"`
	Delta        completionDelta   `json:"delta"`
	Logprobs     *choiceLogprobs   `json:"logprobs"`
	FinishReason *string           `json:"finish_reason"`
	Berth        *choiceExtensions `json:"berth,omitempty"` // with the finish reason
}

// A completionDelta is the part of a message that a chunk adds. Content and refusal may be
// explicit nulls, which differ from absent fields.
type completionDelta struct {
	Role             string          `json:"role,omitempty"`
	Content          json.RawMessage `json:"content,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []callDelta     `json:"tool_calls,omitempty"`
	FunctionCall     *functionDelta  `json:"function_call,omitempty"`
	Refusal          json.RawMessage `json:"refusal,omitempty"`
	Annotations      []annotation    `json:"annotations,omitempty"`
}

type callDelta struct {
	Index    int            `json:"index"`
	ID       string         `json:"id,omitempty"`
	Type     string         `json:"type,omitempty"`
	Function *functionDelta `json:"function,omitempty"`
	Custom   *customDelta   `json:"custom,omitempty"`
}

type functionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type customDelta struct {
	Name  string `json:"name,omitempty"`
	Input string `json:"input"`
}

var (
	nullJSON  = json.RawMessage("null")
	emptyJSON = json.RawMessage(`""`)
)

func wordsDelta(kind pieceKind, words string) completionDelta {
	switch kind {
	case pieceRefusal:
		return completionDelta{Refusal: berth.StringDelta(words)}
	case pieceThought:
		return completionDelta{ReasoningContent: words}
	}
	return completionDelta{Content: berth.StringDelta(words)}
}

// callDelta returns a delta of a call: the first with its name, others with arguments.
func (c *completionChoice) callDelta(p *choicePiece, first bool, words string) completionDelta {
	d := callDelta{Index: slices.Index(c.calls(), p)}
	if custom := p.call.Custom; custom != nil {
		d.Custom = &customDelta{Input: words}
		if first {
			d.Custom.Name = custom.Name
		}
	} else {
		d.Function = &functionDelta{Arguments: words}
		if first {
			d.Function.Name = p.call.Function.Name
		}
	}
	if c.request.legacy() {
		return completionDelta{FunctionCall: d.Function}
	}
	if first {
		d.ID, d.Type = p.call.ID, p.call.Type
	}
	return completionDelta{ToolCalls: []callDelta{d}}
}

// ifLive returns the chunks of a delta if the choice is live, otherwise nil.
func (c *completionChoice) ifLive(d completionDelta, logprobs []json.RawMessage) []chunkChoice {
	if !c.live() {
		return nil
	}
	return c.chunks(d, logprobs)
}

// chunks returns the chunk of a delta. The first delta is preceded by a chunk with the role
// and an empty content or refusal. A first delta that is a call is part of that chunk.
func (c *completionChoice) chunks(d completionDelta, logprobs []json.RawMessage) []chunkChoice {
	var out []chunkChoice
	if !c.started {
		c.started = true
		first := completionDelta{Role: "assistant", Content: emptyJSON, Refusal: nullJSON}
		switch {
		case d.Refusal != nil:
			first.Content, first.Refusal = nullJSON, emptyJSON
		case d.ToolCalls != nil || d.FunctionCall != nil:
			first.Content, first.ToolCalls, first.FunctionCall = nullJSON, d.ToolCalls, d.FunctionCall
			return []chunkChoice{{Index: c.index, Delta: first}}
		}
		out = append(out, chunkChoice{Index: c.index, Delta: first})
	}
	return append(out, chunkChoice{Index: c.index, Delta: d, Logprobs: newChoiceLogprobs(logprobs)})
}

// endChunks returns the last chunks of the choice, including all text that was held back.
func (c *completionChoice) endChunks() []chunkChoice {
	var out []chunkChoice
	if !c.live() {
		for _, kind := range []pieceKind{pieceThought, pieceText, pieceRefusal} {
			if words := c.text(kind); words != "" {
				var logprobs []json.RawMessage
				if kind == pieceText {
					logprobs = c.logprobs()
				}
				out = append(out, c.chunks(wordsDelta(kind, words), logprobs)...)
			}
		}
		for _, p := range c.calls() {
			out = append(out, c.chunks(c.callDelta(p, true, ""), nil)...)
			out = append(out, c.chunks(c.callDelta(p, false, p.words.String()), nil)...)
		}
	}
	if cited := c.annotations(); len(cited) > 0 {
		out = append(out, c.chunks(completionDelta{Annotations: cited}, nil)...)
	}
	last := c.chunks(completionDelta{}, nil)
	end := &last[len(last)-1]
	end.FinishReason, end.Berth = &c.finish, c.extensions()
	return append(out, last...)
}

// padding returns random characters that pad a chunk's text to a multiple of 16
// characters, so that the size of a packet does not reveal the length of a token.
func (d *completionDelta) padding() string {
	const block = 16
	n := len(d.Content) + len(d.Refusal) + utf8.RuneCountInString(d.ReasoningContent)
	for _, c := range d.ToolCalls {
		if c.Function != nil {
			n += len(c.Function.Arguments)
		}
		if c.Custom != nil {
			n += len(c.Custom.Input)
		}
	}
	if d.FunctionCall != nil {
		n += len(d.FunctionCall.Arguments)
	}
	return rand.Text()[:block-n%block]
}

package chat

import (
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// params writes a request in the words of Chat Completions. What was not asked for
// is not sent: most upstreams know only part of the parameters.
func (p *Provider) params(req *model.Request) (openai.ChatCompletionNewParams, error) {
	out := openai.ChatCompletionNewParams{
		Model:         req.Model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	var err error
	if out.Messages, err = messages(req); err != nil {
		return out, err
	}
	if req.Temperature != nil {
		out.Temperature = openai.Float(*req.Temperature)
	}
	if req.TopP != nil {
		out.TopP = openai.Float(*req.TopP)
	}
	if req.MaxOutputTokens > 0 {
		// The newer max_completion_tokens is not known to every upstream; this one is.
		out.MaxTokens = openai.Int(int64(req.MaxOutputTokens))
	}
	if req.Logprobs || req.TopLogprobs != nil && *req.TopLogprobs > 0 {
		out.Logprobs = openai.Bool(true)
		if req.TopLogprobs != nil {
			out.TopLogprobs = openai.Int(int64(*req.TopLogprobs))
		}
	}
	if req.User != "" {
		out.User = openai.String(req.User)
	}
	if req.Reasoning.Effort != nil {
		out.ReasoningEffort = shared.ReasoningEffort(*req.Reasoning.Effort)
	}
	if out.ResponseFormat, err = responseFormat(req.Text.Format); err != nil {
		return out, err
	}
	return out, tools(req, &out)
}

func tools(req *model.Request, out *openai.ChatCompletionNewParams) error {
	if len(req.Tools) == 0 {
		return nil
	}
	for _, t := range req.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = openai.String(t.Description)
		}
		if len(t.Parameters) > 0 && string(t.Parameters) != "null" {
			if err := json.Unmarshal(t.Parameters, &f.Parameters); err != nil {
				return berth.Invalid("tools", "The parameters of function '%s' are not a JSON schema: %v.", t.Name, err)
			}
		}
		if t.Strict != nil && *t.Strict {
			f.Strict = openai.Bool(true)
		}
		out.Tools = append(out.Tools, openai.ChatCompletionFunctionTool(f))
	}
	switch req.ToolChoice.Mode {
	case "none", "required":
		out.ToolChoice.OfAuto = openai.String(req.ToolChoice.Mode)
	case "function":
		out.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: req.ToolChoice.Name})
	}
	if !req.ParallelToolCalls {
		out.ParallelToolCalls = openai.Bool(false)
	}
	return nil
}

// responseFormat turns text.format into response_format, whose schema is one
// level deeper.
func responseFormat(raw json.RawMessage) (out openai.ChatCompletionNewParamsResponseFormatUnion, err error) {
	var f struct {
		Type        string         `json:"type"`
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Schema      map[string]any `json:"schema"`
		Strict      *bool          `json:"strict"`
	}
	if len(raw) == 0 {
		return out, nil
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return out, berth.Invalid("text.format", "Invalid text.format: %v.", err)
	}
	switch f.Type {
	case "json_object":
		out.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	case "json_schema":
		schema := shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: f.Name, Schema: f.Schema}
		if f.Description != "" {
			schema.Description = openai.String(f.Description)
		}
		if f.Strict != nil {
			schema.Strict = openai.Bool(*f.Strict)
		}
		out.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: schema}
	}
	return out, nil
}

// messages turns items into messages. Upstreams insist on an order that items do
// not have: the calls of one turn stand in one assistant message together with its
// text, and their outputs follow it at once.
func messages(req *model.Request) ([]openai.ChatCompletionMessageParamUnion, error) {
	b := &builder{outputs: map[string]berth.FunctionCallOutput{}}
	if req.Instructions != "" {
		b.out = append(b.out, openai.SystemMessage(req.Instructions))
	}
	for _, it := range req.Items {
		var o berth.FunctionCallOutput
		if it.Type() == berth.ItemFunctionCallOutput && it.Decode(&o) == nil {
			b.outputs[o.CallID] = o
		}
	}
	for _, it := range req.Items {
		if err := b.add(it); err != nil {
			return nil, err
		}
	}
	b.flush()
	return b.out, nil
}

// interrupted stands in for an output that there is not: upstreams refuse a call
// without one.
const interrupted = "The call was interrupted; there is no output."

type builder struct {
	out     []openai.ChatCompletionMessageParamUnion
	outputs map[string]berth.FunctionCallOutput
	open    *openai.ChatCompletionAssistantMessageParam // a turn's message, still growing
	images  []openai.ChatCompletionContentPartUnionParam
}

func (b *builder) add(it berth.Item) error {
	switch it.Type() {
	case berth.ItemMessage, "":
		var m berth.Message
		if err := it.Decode(&m); err != nil {
			return berth.Invalid("input", "Invalid message: %v.", err)
		}
		b.message(m)
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		if err := it.Decode(&c); err != nil {
			return berth.Invalid("input", "Invalid function call: %v.", err)
		}
		b.call(c)
	}
	// Outputs stand with their calls. Reasoning belongs to the provider that made
	// it, and other types mean nothing here.
	return nil
}

func (b *builder) message(m berth.Message) {
	if m.Role == "assistant" {
		if b.open == nil || len(b.open.ToolCalls) > 0 {
			b.flush()
			b.open = &openai.ChatCompletionAssistantMessageParam{}
		}
		text, refusal := assistantText(m)
		if old := b.open.Content.OfString; old.Valid() {
			text = old.Value + text
		}
		b.open.Content.OfString = openai.String(text)
		if refusal != "" {
			b.open.Refusal = openai.String(refusal)
		}
		return
	}
	b.flush()
	if m.Role == "system" || m.Role == "developer" {
		// Most upstreams know no developer role.
		b.out = append(b.out, openai.SystemMessage(text(m.Content)))
		return
	}
	if len(m.Content) == 1 && m.Content[0].Type == "input_text" {
		b.out = append(b.out, openai.UserMessage(m.Content[0].Text))
		return
	}
	b.out = append(b.out, openai.UserMessage(parts(m.Content)))
}

func assistantText(m berth.Message) (text, refusal string) {
	for _, c := range m.Content {
		text += c.Text
		refusal += c.Refusal
	}
	return text, refusal
}

func text(content []berth.Content) string {
	var lines []string
	for _, c := range content {
		if c.Text != "" {
			lines = append(lines, c.Text)
		}
	}
	return strings.Join(lines, "\n")
}

func parts(content []berth.Content) []openai.ChatCompletionContentPartUnionParam {
	var out []openai.ChatCompletionContentPartUnionParam
	for _, c := range content {
		switch c.Type {
		case "input_image":
			out = append(out, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: c.ImageURL, Detail: detail(c.Detail)}))
		case "input_file":
			out = append(out, openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
				FileData: optional(c.FileData), Filename: optional(c.Filename)}))
		default:
			if c.Text != "" {
				out = append(out, openai.TextContentPart(c.Text))
			}
		}
	}
	if out == nil {
		out = append(out, openai.TextContentPart(""))
	}
	return out
}

// detail drops what Chat Completions has no word for.
func detail(d string) string {
	if d == "low" || d == "high" || d == "auto" {
		return d
	}
	return ""
}

func optional(s string) param.Opt[string] {
	if s == "" {
		return param.Opt[string]{}
	}
	return openai.String(s)
}

func (b *builder) call(c berth.FunctionCall) {
	if b.open == nil {
		b.open = &openai.ChatCompletionAssistantMessageParam{}
	}
	f := openai.ChatCompletionMessageFunctionToolCallParam{ID: c.CallID,
		Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: arguments(c.Arguments)}}
	b.open.ToolCalls = append(b.open.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: &f})
}

// arguments gives back what the model wrote, unless it was not JSON: upstreams
// parse it, and some fail on what another model got wrong.
func arguments(s string) string {
	if json.Valid([]byte(s)) {
		return s
	}
	return "{}"
}

// flush ends the open assistant message and answers its calls.
func (b *builder) flush() {
	if b.open == nil {
		return
	}
	m := b.open
	b.open = nil
	b.out = append(b.out, openai.ChatCompletionMessageParamUnion{OfAssistant: m})
	for _, c := range m.ToolCalls {
		b.out = append(b.out, b.output(c.OfFunction.ID))
	}
	if len(b.images) > 0 { // a tool message carries text only
		b.out = append(b.out, openai.UserMessage(b.images))
		b.images = nil
	}
}

func (b *builder) output(callID string) openai.ChatCompletionMessageParamUnion {
	o, ok := b.outputs[callID]
	if !ok {
		return openai.ToolMessage(interrupted, callID)
	}
	var s string
	if json.Unmarshal(o.Output, &s) == nil {
		return openai.ToolMessage(s, callID)
	}
	var content []berth.Content
	if json.Unmarshal(o.Output, &content) != nil {
		return openai.ToolMessage(string(o.Output), callID)
	}
	for _, c := range content {
		if c.Type == "input_image" || c.Type == "input_file" {
			b.images = append(b.images, parts([]berth.Content{c})...)
		}
	}
	return openai.ToolMessage(text(content), callID)
}

package anthropic

import (
	"encoding/json"
	"reflect"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// request converts a turn to a request of Messages.
func (p *Provider) request(req *model.Request) (*request, error) {
	if err := refuse(req); err != nil {
		return nil, err
	}
	g := generationOf(req.Model)
	out := &request{
		Model:         req.Model,
		MaxTokens:     req.MaxOutputTokens,
		Temperature:   unlessOne(req.Temperature),
		TopP:          unlessOne(req.TopP),
		StopSequences: req.Sampling.Stop,
		Stream:        true,
	}
	if out.MaxTokens == 0 {
		if out.MaxTokens = p.opts.MaxTokens; out.MaxTokens == 0 {
			out.MaxTokens = g.maxTokens()
		}
	}
	if req.User != "" {
		out.Metadata = &metadata{UserID: req.User}
	}
	out.vendor = p.vendorTools(req, g)
	if err := out.setTools(req, g); err != nil {
		return nil, err
	}
	hint, err := p.setFormat(out, req, g)
	if err != nil {
		return nil, err
	}
	p.setThinking(out, req, g)
	if err := p.setDialogue(out, req, hint); err != nil {
		return nil, err
	}
	if p.opts.Cache != "off" {
		out.mark(p.opts.Cache)
	}
	return out, nil
}

// refuse returns an error if the request sets a field that Messages does not have.
func refuse(req *model.Request) error {
	if req.Logprobs || req.TopLogprobs != nil && *req.TopLogprobs > 0 {
		return &berth.Error{Code: berth.CodeInvalid, Wire: "unsupported_parameter", Param: "top_logprobs",
			Message: "Unsupported parameter: 'top_logprobs' is not supported with this model."}
	}
	return model.RefuseSampling(req.Sampling, "stop")
}

// unlessOne omits the default, because newer models refuse any value.
func unlessOne(v *float64) *float64 {
	if v != nil && *v == 1 {
		return nil
	}
	return v
}

// setTools adds the tools and the tool choice.
func (r *request) setTools(req *model.Request, g generation) error {
	for _, t := range req.Tools {
		if tools, about := r.vendor.offer(t); len(tools) > 0 {
			r.Tools, r.about = append(r.Tools, tools...), dialogue.Join(r.about, about)
			continue
		}
		schema, err := toolSchema(t)
		if err != nil {
			return err
		}
		strict := t.Strict != nil && *t.Strict && (!g.claude || g.since(4, 5)) && plain(schema)
		r.Tools = append(r.Tools, tool{Name: t.Name, Description: t.Description, InputSchema: schema, Strict: strict})
	}
	if len(r.Tools) == 0 {
		return nil
	}
	switch req.ToolChoice.Mode {
	case "none":
		r.ToolChoice = &toolChoice{Type: "none"}
		return nil
	case "required":
		r.ToolChoice = &toolChoice{Type: "any"}
	case "function":
		r.ToolChoice = &toolChoice{Type: "tool", Name: r.vendor.offered(req.ToolChoice.Name)}
	}
	if !req.ParallelToolCalls {
		if r.ToolChoice == nil {
			r.ToolChoice = &toolChoice{Type: "auto"}
		}
		r.ToolChoice.DisableParallel = true
	}
	return nil
}

// toolSchema returns the schema of a function's parameters, which must have type
// object.
func toolSchema(t berth.FunctionTool) (json.RawMessage, error) {
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	}
	if !dialogue.IsObject(t.Parameters) {
		return nil, berth.Invalid("tools", "The parameters of function '%s' are not a JSON schema.", t.Name)
	}
	var schema map[string]json.RawMessage
	if err := json.Unmarshal(t.Parameters, &schema); err != nil {
		return nil, berth.Invalid("tools", "The parameters of function '%s' are not a JSON schema.", t.Name)
	}
	if schema["type"] != nil {
		return t.Parameters, nil
	}
	schema["type"] = json.RawMessage(`"object"`)
	raw, err := json.Marshal(schema)
	return raw, err
}

const (
	// answerTool is the name of the tool that enforces a JSON schema.
	answerTool = "final_answer"

	// describeAnswer is its description, read by the model.
	describeAnswer = "Give your final answer by calling this function. What it is called with is shown to the user as it is."
)

// setFormat applies text.format. It returns instructions for the model about whatever
// the wire has no field for.
func (p *Provider) setFormat(out *request, req *model.Request, g generation) (hint string, err error) {
	hint = dialogue.Hint(req.Text.Verbosity)
	if len(req.Text.Format) == 0 {
		return hint, nil
	}
	var format struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal(req.Text.Format, &format); err != nil {
		return "", berth.Invalid("text.format", "Invalid text.format: %v.", err)
	}
	switch {
	case format.Type == "json_object":
		return dialogue.Join(hint, dialogue.JSON), nil
	case format.Type != "json_schema":
		return hint, nil
	case p.opts.Structured == "tool" || p.opts.Structured == "" && g.claude && !g.since(4, 5):
		t := berth.FunctionTool{Name: answerTool, Description: dialogue.Join(describeAnswer, format.Description),
			Parameters: format.Schema}
		schema, err := toolSchema(t)
		if err != nil {
			return "", berth.Invalid("text.format", "The schema of text.format is not a JSON schema.")
		}
		out.Tools = append(out.Tools, tool{Name: t.Name, Description: t.Description, InputSchema: schema})
		if len(req.Tools) == 0 || req.ToolChoice.Mode == "none" {
			out.ToolChoice = &toolChoice{Type: "tool", Name: answerTool}
		} else if out.ToolChoice == nil || out.ToolChoice.Type == "auto" {
			out.ToolChoice = &toolChoice{Type: "any", DisableParallel: !req.ParallelToolCalls}
		}
		out.textTool = answerTool
		return hint, nil
	}
	schema, err := strictSchema(format.Schema)
	if err != nil {
		return "", err
	}
	out.OutputConfig = &outputConfig{Format: &outputFormat{Type: "json_schema", Schema: schema}}
	return hint, nil
}

// strictSchema returns a schema that Anthropic accepts for a format. A supported
// schema stays unchanged, because its order is the order of the answer. Unsupported
// parts of others move into descriptions.
func strictSchema(raw json.RawMessage) (json.RawMessage, error) {
	if plain(raw) {
		return raw, nil
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, berth.Invalid("text.format", "The schema of text.format is not a JSON schema.")
	}
	return json.Marshal(orAny(simplify(schema)))
}

// plain reports whether Anthropic's structured output supports a whole schema.
func plain(raw json.RawMessage) bool {
	var schema map[string]any
	return json.Unmarshal(raw, &schema) == nil && reflect.DeepEqual(simplify(schema), any(schema))
}

// setThinking sets thinking and effort as the request wants them.
func (p *Provider) setThinking(out *request, req *model.Request, g generation) {
	effort := ""
	if req.Reasoning.Effort != nil {
		effort = *req.Reasoning.Effort
	}
	if effort == "none" {
		if g.thinksByDefault() {
			out.Thinking = &thinking{Type: "disabled"}
		}
		return
	}
	if e := g.effort(effort); e != "" {
		if out.OutputConfig == nil {
			out.OutputConfig = &outputConfig{}
		}
		out.OutputConfig.Effort = e
	}
	forced := out.ToolChoice != nil && (out.ToolChoice.Type == "any" || out.ToolChoice.Type == "tool")
	wanted := effort != "" || req.Reasoning.Summary != nil
	switch {
	case p.opts.Thinking == "adaptive", p.opts.Thinking == "" && g.adapts():
		if !wanted && !g.binds() {
			return
		}
		out.Thinking = &thinking{Type: "adaptive"}
		if req.Reasoning.Summary != nil {
			out.Thinking.Display = "summarized"
		}
		if g.binds() {
			out.Thinking.Binding = &binding{PrefixMismatchBehavior: "drop_block"}
		}
	case effort != "" && !forced: // a model cannot think before a forced call
		budget := min(budgets[effort], out.MaxTokens/2)
		if budget >= minBudget && (!g.claude || g.since(3, 7)) {
			out.Thinking = &thinking{Type: "enabled", BudgetTokens: budget}
		}
	}
}

// acceptsThoughts reports whether thoughts of earlier turns may be sent. A Claude that
// does not think in this turn must not get them.
func (r *request) acceptsThoughts(g generation) bool {
	if r.Thinking != nil {
		return r.Thinking.Type != "disabled"
	}
	return !g.claude || g.thinksByDefault()
}

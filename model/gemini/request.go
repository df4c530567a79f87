package gemini

import (
	"encoding/json"
	"math"
	"reflect"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// request converts a turn to a request of generateContent.
func (p *Provider) request(req *model.Request) (*request, error) {
	if err := model.RefuseSampling(req.Sampling, "stop", "seed", "frequency_penalty", "presence_penalty"); err != nil {
		return nil, err
	}
	g := generationOf(req.Model)
	config := &generationConfig{
		MaxOutputTokens:  int32(min(req.MaxOutputTokens, math.MaxInt32)),
		Temperature:      narrow(req.Temperature),
		TopP:             narrow(req.TopP),
		StopSequences:    req.Sampling.Stop,
		FrequencyPenalty: narrow(req.Sampling.FrequencyPenalty),
		PresencePenalty:  narrow(req.Sampling.PresencePenalty),
		Thinking:         p.thinking(req, g),
	}
	if seed := req.Sampling.Seed; seed != nil {
		if *seed != int64(int32(*seed)) {
			return nil, berth.Invalid("seed", "This model takes a seed of 32 bits.")
		}
		narrowed := int32(*seed)
		config.Seed = &narrowed
	}
	if top := req.TopLogprobs; req.Logprobs || top != nil && *top > 0 {
		config.ResponseLogprobs = true
		if top != nil {
			n := int32(min(*top, 20))
			config.Logprobs = &n
		}
	}
	out := &request{}
	if err := out.setTools(req); err != nil {
		return nil, err
	}
	hint, err := setFormat(config, req, g)
	if err != nil {
		return nil, err
	}
	if !reflect.ValueOf(*config).IsZero() {
		out.GenerationConfig = config
	}
	return out, p.setDialogue(out, req, g, hint)
}

// narrow converts a number to the vendor's precision.
func narrow(v *float64) *float32 {
	if v == nil {
		return nil
	}
	f := float32(*v)
	return &f
}

// thinking returns thinking budget or level as the request wants it, or nil.
func (p *Provider) thinking(req *model.Request, g generation) *thinkingConfig {
	config := &thinkingConfig{IncludeThoughts: req.Reasoning.Summary != nil}
	effort := ""
	if req.Reasoning.Effort != nil {
		effort = *req.Reasoning.Effort
	}
	switch {
	case !g.since(2, 5), effort == "" && !config.IncludeThoughts:
		return nil
	case effort == "":
	case p.opts.Thinking == "budget", p.opts.Thinking == "" && !g.since(3, 0):
		budget := g.budget(effort)
		config.Budget = &budget
		config.IncludeThoughts = config.IncludeThoughts && budget > 0
	default:
		config.Level = g.level(effort)
	}
	return config
}

// setTools adds the tools and the tool choice.
func (r *request) setTools(req *model.Request) error {
	if len(req.Tools) == 0 {
		return nil
	}
	var all functions
	for _, t := range req.Tools {
		f := declaration{Name: t.Name, Description: t.Description}
		if len(t.Parameters) > 0 && string(t.Parameters) != "null" {
			if !dialogue.IsObject(t.Parameters) {
				return berth.Invalid("tools", "The parameters of function '%s' are not a JSON schema.", t.Name)
			}
			f.Parameters = subset(t.Parameters)
		}
		all.Declarations = append(all.Declarations, f)
	}
	r.Tools = []functions{all}
	var choice functionCalling
	switch req.ToolChoice.Mode {
	case "none":
		choice.Mode = "NONE"
	case "required":
		choice.Mode = "ANY"
	case "function":
		choice.Mode = "ANY"
		choice.AllowedNames = []string{req.ToolChoice.Name}
	default:
		return nil
	}
	r.ToolConfig = &toolConfig{FunctionCalling: choice}
	return nil
}

// setFormat applies text.format. It returns instructions for the model about whatever
// the wire has no field for.
func setFormat(config *generationConfig, req *model.Request, g generation) (hint string, err error) {
	hint = dialogue.Hint(req.Text.Verbosity)
	if len(req.Text.Format) == 0 {
		return hint, nil
	}
	var format struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal(req.Text.Format, &format); err != nil {
		return "", berth.Invalid("text.format", "Invalid text.format: %v.", err)
	}
	if format.Type != "json_object" && format.Type != "json_schema" {
		return hint, nil
	}
	if format.Type == "json_schema" && !dialogue.IsObject(format.Schema) {
		return "", berth.Invalid("text.format", "The schema of text.format is not a JSON schema.")
	}
	if len(req.Tools) > 0 && !g.since(3, 0) { // these models cannot do both
		hint = dialogue.Join(hint, dialogue.JSON)
		if format.Type == "json_schema" {
			hint = dialogue.Join(hint, "Its JSON schema is:\n"+string(format.Schema))
		}
		return hint, nil
	}
	config.ResponseMIMEType = "application/json"
	if format.Type == "json_schema" {
		config.ResponseSchema = subset(format.Schema)
	}
	return hint, nil
}

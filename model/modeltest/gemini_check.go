package modeltest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// geminiRequest has every parameter of generateContent that a provider may use.
type geminiRequest struct {
	Contents          []json.RawMessage `json:"contents"`
	SystemInstruction *struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	} `json:"systemInstruction"`
	Tools []struct {
		FunctionDeclarations []geminiFunction `json:"functionDeclarations"`
	} `json:"tools"`
	ToolConfig *struct {
		FunctionCallingConfig *struct {
			Mode                 string   `json:"mode"`
			AllowedFunctionNames []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	GenerationConfig *geminiConfig `json:"generationConfig"`
	SafetySettings   any           `json:"safetySettings"`
	CachedContent    any           `json:"cachedContent"`
}

type geminiFunction struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
	Parameters           any             `json:"parameters"`
}

type geminiConfig struct {
	MaxOutputTokens    *int            `json:"maxOutputTokens"`
	Temperature        *float64        `json:"temperature"`
	TopP               *float64        `json:"topP"`
	TopK               any             `json:"topK"`
	StopSequences      []string        `json:"stopSequences"`
	Seed               *int32          `json:"seed"`
	FrequencyPenalty   *float64        `json:"frequencyPenalty"`
	PresencePenalty    *float64        `json:"presencePenalty"`
	ResponseLogprobs   bool            `json:"responseLogprobs"`
	Logprobs           *int            `json:"logprobs"`
	ResponseMIMEType   string          `json:"responseMimeType"`
	ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
	ThinkingConfig     *struct {
		IncludeThoughts bool   `json:"includeThoughts"`
		ThinkingBudget  *int   `json:"thinkingBudget"`
		ThinkingLevel   string `json:"thinkingLevel"`
	} `json:"thinkingConfig"`
}

var (
	geminiVersion = regexp.MustCompile(`gemini-(\d+)(?:\.(\d+))?`)
	geminiName    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)
)

// geminiSince reports whether a model has a version or a later one. Models other than
// Gemini count as the latest.
func geminiSince(name string, version int) bool {
	m := geminiVersion.FindStringSubmatch(name)
	if m == nil {
		return true
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major*100+minor >= version
}

// decodeGemini decodes a request, or returns Google's refusal.
func decodeGemini(name string, body []byte) (*Request, *Refusal) {
	var c check
	var r geminiRequest
	if !c.strictly(body, "Invalid JSON payload received.", &r) {
		return nil, c.refusal
	}
	got := &Request{Model: name, ParallelToolCalls: true}
	g := geminiContents{check: &c, model: name}
	tools := c.geminiTools(&r, got)
	if r.GenerationConfig != nil {
		c.geminiConfig(name, r.GenerationConfig, got, tools > 0)
	}
	if s := r.SystemInstruction; s != nil {
		var texts []string
		for _, raw := range s.Parts {
			var p struct {
				Text string `json:"text"`
			}
			c.strictly(raw, "systemInstruction.parts", &p)
			c.want(p.Text != "", "systemInstruction.parts: must have a text parameter")
			texts = append(texts, p.Text)
		}
		c.want(len(texts) > 0, "systemInstruction.parts: must not be empty")
		got.System = strings.Join(texts, "\n\n")
	}
	g.read(r.Contents, got)
	return got, c.refusal
}

func (c *check) geminiTools(r *geminiRequest, got *Request) int {
	names := map[string]bool{}
	for _, t := range r.Tools {
		for i, f := range t.FunctionDeclarations {
			path := fmt.Sprintf("tools[0].function_declarations[%d]", i)
			c.want(geminiName.MatchString(f.Name),
				"%s.name: Invalid function name. Must start with a letter or an underscore.", path)
			c.want(!names[f.Name], "Duplicate function declaration found: %s", f.Name)
			c.want(f.Parameters == nil || f.ParametersJSONSchema == nil,
				"%s: parameters and parameters_json_schema exclude each other", path)
			names[f.Name] = true
			if f.ParametersJSONSchema != nil {
				c.geminiSchema(path, f.ParametersJSONSchema)
			}
			got.Tools = append(got.Tools, berth.FunctionTool{Type: "function", Name: f.Name, Description: f.Description,
				Parameters: f.ParametersJSONSchema})
		}
	}
	c.want(r.Tools == nil || len(names) > 0, "tools: no function declarations")
	if r.ToolConfig == nil || r.ToolConfig.FunctionCallingConfig == nil {
		return len(names)
	}
	choice := r.ToolConfig.FunctionCallingConfig
	mode, known := map[string]string{"AUTO": "auto", "NONE": "none", "ANY": "required",
		"VALIDATED": "auto"}[choice.Mode]
	c.want(known && len(names) > 0, "tool_config.function_calling_config.mode: %q", choice.Mode)
	got.ToolChoice = model.ToolChoice{Mode: mode}
	for _, name := range choice.AllowedFunctionNames {
		c.want(names[name], "tool_config: %q is no function", name)
		c.want(contains(choice.Mode, "ANY", "VALIDATED"), "tool_config: allowed_function_names goes with mode ANY")
		got.ToolChoice = model.ToolChoice{Mode: "function", Name: name}
	}
	return len(names)
}

var geminiWords = []string{"$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items",
	"prefixItems", "minItems", "maxItems", "minimum", "maximum",
	"anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering", "nullable"}

// geminiSchema checks that a schema has only documented keywords.
func (c *check) geminiSchema(path string, raw json.RawMessage) {
	var schema map[string]json.RawMessage
	if !c.want(json.Unmarshal(raw, &schema) == nil, "%s: not a schema", path) {
		return
	}
	for word, v := range schema {
		c.want(slices.Contains(geminiWords, word), "%s: unknown field in schema: %s", path, word)
		var one map[string]json.RawMessage
		var list []json.RawMessage
		switch {
		case word == "properties" || word == "$defs":
			c.want(json.Unmarshal(v, &one) == nil, "%s.%s", path, word)
			for name, s := range one {
				c.geminiSchema(path+"."+name, s)
			}
		case (word == "items" || word == "additionalProperties") && json.Unmarshal(v, &one) == nil:
			c.geminiSchema(path+"."+word, v)
		case contains(word, "anyOf", "oneOf", "prefixItems"):
			c.want(json.Unmarshal(v, &list) == nil, "%s.%s", path, word)
			for _, s := range list {
				c.geminiSchema(path+"."+word, s)
			}
		}
	}
}

func (c *check) geminiConfig(name string, g *geminiConfig, got *Request, tools bool) {
	within := func(name string, v *float64, low, high float64) {
		c.want(v == nil || *v >= low && *v <= high,
			"generation_config.%s: Unable to submit request because it must be between %g and %g", name, low, high)
	}
	within("temperature", g.Temperature, 0, 2)
	within("top_p", g.TopP, 0, 1)
	within("frequency_penalty", g.FrequencyPenalty, -2, 2)
	within("presence_penalty", g.PresencePenalty, -2, 2)
	got.Temperature, got.TopP, got.Stop, got.Logprobs = g.Temperature, g.TopP, g.StopSequences, g.ResponseLogprobs
	c.want(len(g.StopSequences) <= 5, "generation_config.stop_sequences: at most 5")
	if g.MaxOutputTokens != nil {
		got.MaxOutputTokens = *g.MaxOutputTokens
		c.want(*g.MaxOutputTokens >= 1, "max_output_tokens must be positive")
	}
	if g.Logprobs != nil {
		got.TopLogprobs = *g.Logprobs
		c.want(g.ResponseLogprobs && *g.Logprobs >= 0 && *g.Logprobs <= 20, "logprobs: %d", *g.Logprobs)
	}
	c.want(contains(g.ResponseMIMEType, "", "text/plain", "application/json", "text/x.enum"), "response_mime_type: %q",
		g.ResponseMIMEType)
	if g.ResponseMIMEType == "application/json" {
		c.want(!tools || geminiSince(name, 300),
			"Function calling with a response mime type: 'application/json' is unsupported")
		got.Format = json.RawMessage(`{"type":"json_object"}`)
	}
	if g.ResponseJSONSchema != nil {
		c.want(g.ResponseMIMEType == "application/json",
			"response_json_schema needs response_mime_type application/json")
		c.geminiSchema("response_json_schema", g.ResponseJSONSchema)
		// decoded from JSON
		got.Format, _ = json.Marshal(map[string]any{"type": "json_schema", "schema": g.ResponseJSONSchema})
	}
	t := g.ThinkingConfig
	if t == nil {
		return
	}
	c.want(geminiSince(name, 205), "thinking_config: thinking is not supported by this model")
	c.want(t.ThinkingBudget == nil || t.ThinkingLevel == "",
		"You can only set only one of thinking budget and thinking level.")
	if t.ThinkingLevel != "" {
		got.Effort = strings.ToLower(t.ThinkingLevel)
		c.want(geminiSince(name, 300), "Thinking level is not supported for this model.")
		c.want(contains(t.ThinkingLevel, "LOW", "MEDIUM", "HIGH") || t.ThinkingLevel == "MINIMAL" &&
			strings.Contains(name, "3-flash"), "thinking_level: %s", t.ThinkingLevel)
		c.want(t.ThinkingLevel != "MEDIUM" || !strings.Contains(name, "gemini-3-pro"),
			"Thinking level MEDIUM is not supported for this model.")
	}
	if b := t.ThinkingBudget; b != nil {
		c.want(*b >= -1 && *b <= 32768, "thinking_budget: %d", *b)
		pro := strings.Contains(name, "pro")
		c.want(!pro || *b != 0 && (*b < 0 || *b >= 128),
			"Budget %d is invalid. This model only works in thinking mode.", *b)
		c.want(pro || *b <= 24576, "thinking_budget: %d", *b)
	}
}

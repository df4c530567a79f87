package modeltest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// anthropicRequest has every parameter of Messages that a provider may use, which
// excludes those of server-side tools.
type anthropicRequest struct {
	Model      string            `json:"model"`
	MaxTokens  *int              `json:"max_tokens"`
	Messages   []json.RawMessage `json:"messages"`
	System     json.RawMessage   `json:"system"`
	Stream     bool              `json:"stream"`
	Tools      []anthropicTool   `json:"tools"`
	ToolChoice *struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		OneOnly *bool  `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	Thinking     *anthropicThinking `json:"thinking"`
	OutputConfig *struct {
		Effort string `json:"effort"`
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
	Temperature   *float64 `json:"temperature"`
	TopP          *float64 `json:"top_p"`
	StopSequences []string `json:"stop_sequences"`
	Metadata      *struct {
		UserID string `json:"user_id"`
	} `json:"metadata"`

	CacheControl *anthropicCache `json:"cache_control"`
	TopK         any             `json:"top_k"`
	ServiceTier  any             `json:"service_tier"`
	InferenceGeo any             `json:"inference_geo"`
}

type anthropicTool struct {
	Type         string          `json:"type"`
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	Strict       *bool           `json:"strict"`
	CacheControl *anthropicCache `json:"cache_control"`

	DisplayWidth  int `json:"display_width_px"`
	DisplayHeight int `json:"display_height_px"`
}

type anthropicCache struct {
	Type string `json:"type"`
	TTL  string `json:"ttl"`
}

type anthropicThinking struct {
	Type         string `json:"type"`
	BudgetTokens *int   `json:"budget_tokens"`
	Display      string `json:"display"`
	Binding      *struct {
		PrefixMismatchBehavior string `json:"prefix_mismatch_behavior"`
	} `json:"block_binding"`
}

// anthropicVersions finds a version in the name of a model, before or after its line.
var (
	anthropicVersion = regexp.MustCompile(`claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?:[-@:.]|$)`)
	anthropicDate    = regexp.MustCompile(`-\d{8}$`)
)

// anthropicSince reports whether a model has a version or a later one. Models other
// than Claude accept everything.
func anthropicSince(name string, version int) (since, claude bool) {
	if !strings.Contains(name, "claude") {
		return false, false
	}
	m := anthropicVersion.FindStringSubmatch(name)
	if m == nil {
		return true, true
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major*100+minor >= version, true
}

// decode decodes a request, or returns Anthropic's refusal. Thoughts of the answer
// will be bound to the prefix.
func (h *AnthropicHandler) decode(body []byte, header http.Header) (*Request, string, *Refusal) {
	var c check
	var r anthropicRequest
	if !c.strictly(body, "the body", &r) {
		return nil, "", c.refusal
	}
	c.want(r.Model != "", "model: Field required")
	if len(h.Models) > 0 && !slices.Contains(h.Models, r.Model) {
		return nil, "", &Refusal{Status: http.StatusNotFound, Message: "model: " + r.Model}
	}
	c.want(r.Stream, "this double streams only")
	got := &Request{Model: r.Model, Temperature: r.Temperature, TopP: r.TopP, Stop: r.StopSequences,
		ParallelToolCalls: true}
	if c.want(r.MaxTokens != nil, "max_tokens: Field required") {
		got.MaxOutputTokens = *r.MaxTokens
		c.want(*r.MaxTokens >= 1, "max_tokens: must be greater than or equal to 1")
	}
	if r.Metadata != nil {
		got.User = r.Metadata.UserID
		c.want(len(got.User) <= 256, "metadata.user_id: too long")
	}
	m := anthropicMessages{check: &c, request: &r}
	c.anthropicSampling(&r)
	m.tools(got, header)
	m.thinking(header)
	m.output(got)
	prefix := m.read(body, got)
	c.want(m.marks <= 4, "A maximum of 4 blocks with cache_control may be provided. Found %d.", m.marks)
	return got, prefix, c.refusal
}

func (c *check) anthropicSampling(r *anthropicRequest) {
	for name, v := range map[string]*float64{"temperature": r.Temperature, "top_p": r.TopP} {
		c.want(v == nil || *v >= 0 && *v <= 1, "%s: range: 0..1", name)
		if gone, _ := anthropicSince(r.Model, 407); gone {
			c.want(v == nil, "`%s` is deprecated for this model.", name)
		}
	}
	if one, _ := anthropicSince(r.Model, 401); one {
		c.want(r.Temperature == nil || r.TopP == nil,
			"`temperature` and `top_p` cannot both be specified for this model.")
	}
	for _, s := range r.StopSequences {
		c.want(s != "", "stop_sequences: each stop sequence must be non-empty")
	}
}

func (m *anthropicMessages) tools(got *Request, header http.Header) {
	r := m.request
	names := map[string]bool{}
	for i, t := range r.Tools {
		m.want(contains(t.Type, "", "custom") || anthropicOwn[t.Type] == t.Name, "tools.%d.type: %q", i, t.Type)
		m.want(functionName.MatchString(t.Name),
			"tools.%d.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", i)
		m.want(!names[t.Name], "tools: Tool names must be unique.")
		names[t.Name] = true
		m.cached(t.CacheControl)
		beta := anthropicBetas[t.Type]
		m.want((beta != "") == (t.DisplayWidth > 0 && t.DisplayHeight > 0), "tools.%d.display_width_px", i)
		m.want(strings.Contains(header.Get("Anthropic-Beta"), beta), "tools.%d.type: needs the beta header %s", i, beta)
		if anthropicOwn[t.Type] != "" {
			has, claude := anthropicSince(r.Model, 307)
			m.want(has || !claude, "tools.%d: '%s' does not support tool types: %s", i, r.Model, t.Type)
			m.want(t.Description == "" && t.InputSchema == nil && t.Strict == nil,
				"tools.%d.%s: Extra inputs are not permitted", i, t.Type)
			got.Tools = append(got.Tools, berth.FunctionTool{Type: t.Type, Name: t.Name})
			continue
		}
		var schema map[string]any
		if m.want(json.Unmarshal(t.InputSchema, &schema) == nil, "tools.%d.input_schema: Field required", i) {
			m.want(schema["type"] == "object", "tools.%d.input_schema.type: Input should be 'object'", i)
			for _, word := range []string{"oneOf", "allOf", "anyOf"} {
				m.want(schema[word] == nil,
					"tools.%d: input_schema does not support oneOf, allOf, or anyOf at the top level", i)
			}
			if t.Strict != nil && *t.Strict {
				m.plainSchema(fmt.Sprintf("tools.%d", i), schema)
			}
		}
		got.Tools = append(got.Tools, berth.FunctionTool{Type: "function", Name: t.Name, Description: t.Description,
			Parameters: t.InputSchema, Strict: t.Strict})
	}
	if r.ToolChoice == nil {
		return
	}
	m.want(len(r.Tools) > 0, "tool_choice: may only be specified while providing tools")
	mode, known := map[string]string{"auto": "auto", "any": "required", "tool": "function",
		"none": "none"}[r.ToolChoice.Type]
	m.want(known, "tool_choice.type: %q", r.ToolChoice.Type)
	m.want((r.ToolChoice.Type == "tool") == (r.ToolChoice.Name != ""), "tool_choice.name")
	m.want(r.ToolChoice.Name == "" || names[r.ToolChoice.Name], "Tool '%s' not found in provided tools",
		r.ToolChoice.Name)
	m.want(r.ToolChoice.OneOnly == nil || mode != "none",
		"tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted")
	got.ToolChoice = model.ToolChoice{Mode: mode, Name: r.ToolChoice.Name}
	got.ParallelToolCalls = r.ToolChoice.OneOnly == nil || !*r.ToolChoice.OneOnly
}

// anthropicOwn are the types of Anthropic's tools whose calls clients run, with their names.
var anthropicOwn = map[string]string{"bash_20250124": "bash", "text_editor_20250728": "str_replace_based_edit_tool",
	"computer_20250124": "computer", "computer_20251124": "computer"}

// anthropicBetas are the betas of those that have a display.
var anthropicBetas = map[string]string{"computer_20250124": "computer-use-2025-01-24",
	"computer_20251124": "computer-use-2025-11-24"}

// thinking checks the thinking parameters against the model's generation.
func (m *anthropicMessages) thinking(header http.Header) {
	r, t := m.request, m.request.Thinking
	adapts, claude := anthropicSince(r.Model, 406)
	binds, _ := anthropicSince(r.Model, 501)
	if m.thinksByDefault, _ = anthropicSince(r.Model, 500); t == nil {
		return
	}
	forced := r.ToolChoice != nil && contains(r.ToolChoice.Type, "any", "tool")
	m.want(contains(t.Display, "", "summarized", "omitted"), "thinking.display: %q", t.Display)
	m.want((t.Type == "enabled") == (t.BudgetTokens != nil), "thinking: budget_tokens goes with enabled")
	switch t.Type {
	case "enabled":
		m.manual = true
		only, _ := anthropicSince(r.Model, 407)
		thinks, _ := anthropicSince(r.Model, 307)
		m.want(!only,
			"\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.")
		m.want(!claude || thinks, "thinking: this model does not support extended thinking")
		if t.BudgetTokens != nil && r.MaxTokens != nil {
			m.want(*t.BudgetTokens >= 1024,
				"thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
			m.want(*t.BudgetTokens < *r.MaxTokens, "`max_tokens` must be greater than `thinking.budget_tokens`.")
		}
		m.want(!forced, "Thinking may not be enabled when tool_choice forces tool use.")
		m.want(r.Temperature == nil || *r.Temperature == 1,
			"`temperature` may only be set to 1 when thinking is enabled.")
	case "adaptive":
		m.want(!claude || adapts, "adaptive thinking is not supported on this model")
	case "disabled":
		m.thinksByDefault = false
	default:
		m.want(false, "thinking.type: %q", t.Type)
	}
	if t.Binding != nil {
		m.want(t.Type != "disabled" && binds, "thinking.block_binding: Extra inputs are not permitted")
		m.want(strings.Contains(header.Get("Anthropic-Beta"), "thinking-binding-controls-2026-08-01"),
			"thinking.block_binding: needs a beta header")
		m.want(contains(t.Binding.PrefixMismatchBehavior, "error", "drop_block"),
			"thinking.block_binding.prefix_mismatch_behavior")
	}
}

func (m *anthropicMessages) output(got *Request) {
	o := m.request.OutputConfig
	if o == nil {
		return
	}
	if o.Effort != "" {
		got.Effort = o.Effort
		adapts, claude := anthropicSince(m.request.Model, 406)
		m.want(!claude || adapts || strings.Contains(m.request.Model, "opus-4-5"),
			"This model does not support the effort parameter.")
		extra, _ := anthropicSince(m.request.Model, 407)
		m.want(contains(o.Effort, "low", "medium", "high", "max") || o.Effort == "xhigh" && extra,
			"output_config.effort: %q", o.Effort)
	}
	if o.Format == nil {
		return
	}
	holds, claude := anthropicSince(m.request.Model, 405)
	m.want(!claude || holds, "output_config.format: structured output is not supported on this model")
	var schema map[string]any
	m.want(o.Format.Type == "json_schema", "output_config.format.type: %q", o.Format.Type)
	if m.want(json.Unmarshal(o.Format.Schema, &schema) == nil, "output_config.format.schema: Field required") {
		m.plainSchema("output_config.format.schema", schema)
	}
	got.Format, _ = json.Marshal(map[string]any{"type": o.Format.Type, "schema": o.Format.Schema}) // decoded from JSON
}

// plainSchema checks that structured output supports the whole schema.
func (c *check) plainSchema(path string, schema map[string]any) {
	for _, word := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "maxItems", "oneOf", "not", "patternProperties"} {
		c.want(schema[word] == nil, "%s: '%s' is not supported", path, word)
	}
	if schema["type"] == "object" {
		c.want(schema["additionalProperties"] == false,
			"%s: For 'object' type, 'additionalProperties' must be explicitly set to false", path)
	}
	nested, _ := schema["properties"].(map[string]any)
	if nested == nil {
		nested = map[string]any{}
	}
	nested["[]"] = schema["items"]
	for name, v := range nested {
		if s, ok := v.(map[string]any); ok {
			c.plainSchema(path+"."+name, s)
		}
	}
}

// sign returns a signature of parts.
func sign(parts ...string) string {
	sum := sha256.Sum256([]byte("double\x00" + strings.Join(parts, "\x00")))
	return base64.StdEncoding.EncodeToString(sum[:])
}

package threads

import (
	"cmp"
	"encoding/json"

	"github.com/berth-run/berth"
)

// A RunRequest is a request for a run on an existing or on a new thread.
type RunRequest struct {
	AssistantID            string            `json:"assistant_id"`
	Thread                 *ThreadRequest    `json:"thread"`
	Model                  string            `json:"model"`
	Instructions           *string           `json:"instructions"`
	AdditionalInstructions *string           `json:"additional_instructions"`
	AdditionalMessages     []MessageRequest  `json:"additional_messages"`
	Tools                  *[]berth.Tool     `json:"tools"`
	ToolResources          *Resources        `json:"tool_resources"`
	Metadata               map[string]string `json:"metadata"`
	Temperature            *float64          `json:"temperature"`
	TopP                   *float64          `json:"top_p"`
	MaxPromptTokens        *int              `json:"max_prompt_tokens"`
	MaxCompletionTokens    *int              `json:"max_completion_tokens"`
	TruncationStrategy     *Truncation       `json:"truncation_strategy"`
	ToolChoice             json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls      *bool             `json:"parallel_tool_calls"`
	ResponseFormat         json.RawMessage   `json:"response_format"`
	ReasoningEffort        *string           `json:"reasoning_effort"`
	Stream                 bool              `json:"stream"`
}

// newRecord returns the run of a request. Fields that the request omits are those of the
// assistant. Its tools may also use the resources of the thread.
func newRecord(a *Assistant, thread *Thread, req *RunRequest, now int64) *Record {
	run := Run{ID: berth.NewID(prefixRun), Object: string(kindRun), CreatedAt: now, AssistantID: a.ID,
		ThreadID: thread.ID,
		Status:   Queued, Model: a.Model, Tools: a.Tools, ToolResources: a.ToolResources,
		Metadata:    orEmptyMap(req.Metadata),
		Temperature: a.Temperature, TopP: a.TopP, MaxCompletionTokens: req.MaxCompletionTokens,
		MaxPromptTokens:    req.MaxPromptTokens,
		TruncationStrategy: Truncation{Type: "auto"}, ResponseFormat: orRaw(req.ResponseFormat,
			string(a.ResponseFormat)),
		ToolChoice: orRaw(req.ToolChoice, `"auto"`), ParallelToolCalls: req.ParallelToolCalls == nil ||
			*req.ParallelToolCalls,
		ReasoningEffort: a.ReasoningEffort}
	if req.Model != "" {
		run.Model = req.Model
	}
	if req.ToolResources != nil {
		run.ToolResources = *req.ToolResources
	}
	run.ToolResources = run.ToolResources.with(thread.ToolResources)
	if a.Instructions != nil {
		run.Instructions = *a.Instructions
	}
	if req.Instructions != nil {
		run.Instructions = *req.Instructions
	}
	if more := req.AdditionalInstructions; more != nil && *more != "" {
		if run.Instructions != "" {
			run.Instructions += "\n"
		}
		run.Instructions += *more
	}
	if req.Tools != nil {
		run.Tools = *req.Tools
	}
	if req.Temperature != nil {
		run.Temperature = req.Temperature
	}
	if req.TopP != nil {
		run.TopP = req.TopP
	}
	if req.TruncationStrategy != nil {
		run.TruncationStrategy = *req.TruncationStrategy
	}
	if req.ReasoningEffort != nil {
		run.ReasoningEffort = req.ReasoningEffort
	}
	return &Record{Run: run, Legs: []Leg{newLeg(now, nil)}}
}

func newLeg(now int64, outputs []ToolOutput) Leg {
	return Leg{Response: berth.ResponseID(berth.NewID(berth.PrefixResponse)), At: now, Outputs: outputs}
}

// Request returns the request for the response of the last leg. The input of the first leg
// is the given items of the thread; that of others is the tool outputs.
func (r *Record) Request(items []berth.Item) (*berth.ResponseRequest, error) {
	run := &r.Run
	req := &berth.ResponseRequest{Model: run.Model, ParallelToolCalls: &run.ParallelToolCalls,
		Temperature: run.Temperature, TopP: run.TopP, Input: append(berth.Input{}, items...), Truncation: "auto"}
	if run.Instructions != "" {
		req.Instructions = &run.Instructions
	}
	if run.ReasoningEffort != nil {
		req.Reasoning = &berth.ReasoningConfig{Effort: run.ReasoningEffort}
	}
	if format := responseFormat(run.ResponseFormat); format != nil {
		req.Text = &berth.TextConfig{Format: format}
	}
	if run.MaxCompletionTokens != nil {
		left := *run.MaxCompletionTokens - r.Used.CompletionTokens
		req.MaxOutputTokens = &left
	}
	for _, t := range run.Tools {
		converted, err := toolKinds[t.Type()](t, r)
		if err != nil {
			return nil, err
		}
		req.Tools = append(req.Tools, converted...)
	}
	req.ToolChoice = toolChoice(run.ToolChoice, len(r.Legs) == 1)
	if n := len(r.Legs); n > 1 {
		req.PreviousResponseID = r.Legs[n-2].Response
		for _, o := range r.last().Outputs {
			req.Input = append(req.Input,
				berth.NewItem(berth.FunctionCallOutput{ID: berth.NewID(berth.PrefixFunctionOutput),
					Type: berth.ItemFunctionCallOutput, Status: berth.StatusCompleted, CallID: o.ToolCallID,
					Output: berth.StringDelta(o.Output)}))
		}
	}
	return req, nil
}

// toolKinds converts tools of a run to those of its next response, by type. The rules of
// requests refuse all other types.
var toolKinds = map[string]func(berth.Tool, *Record) ([]berth.Tool, error){
	berth.ToolFunction:   functionTool,
	berth.ToolCode:       codeTool,
	berth.ToolFileSearch: searchTool,
}

// codeTool converts the code interpreter. Its files are put into the container once, with
// the first leg.
func codeTool(_ berth.Tool, r *Record) ([]berth.Tool, error) {
	container := map[string]any{"type": "auto"}
	if ids := r.Run.ToolResources.code(); len(r.Legs) == 1 && len(ids) > 0 {
		container["file_ids"] = ids
	}
	return []berth.Tool{berth.NewTool(map[string]any{"type": berth.ToolCode, "container": container})}, nil
}

// searchOptions are the options of an assistant's file search.
type searchOptions struct {
	MaxNumResults  int            `json:"max_num_results"`
	RankingOptions *SearchRanking `json:"ranking_options"`
}

func searchOptionsOf(t berth.Tool) (searchOptions, error) {
	var envelope struct {
		FileSearch searchOptions `json:"file_search"`
	}
	err := t.Decode(&envelope)
	return envelope.FileSearch, err
}

// searchTool converts the file search. A run without vector stores has nothing to search,
// so the model is not offered the tool.
func searchTool(t berth.Tool, r *Record) ([]berth.Tool, error) {
	options, err := searchOptionsOf(t)
	stores := r.Run.ToolResources.search()
	if err != nil || len(stores) == 0 {
		return nil, err
	}
	search := berth.FileSearchTool{Type: berth.ToolFileSearch, VectorStoreIDs: stores,
		MaxNumResults: options.MaxNumResults}
	if o := options.RankingOptions; o != nil {
		search.RankingOptions = &berth.RankingOptions{ScoreThreshold: o.ScoreThreshold}
	}
	return []berth.Tool{berth.NewTool(search)}, nil
}

// rankingOf returns the ranking of a run's file search.
func rankingOf(run *Run) SearchRanking {
	for _, t := range run.Tools {
		if options, err := searchOptionsOf(t); err == nil && t.Type() == berth.ToolFileSearch &&
			options.RankingOptions != nil {
			return SearchRanking{cmp.Or(options.RankingOptions.Ranker, "auto"), options.RankingOptions.ScoreThreshold}
		}
	}
	return SearchRanking{Ranker: "auto"}
}

// functionTool converts a function. By default, functions of assistants are not strict,
// unlike those of responses.
func functionTool(t berth.Tool, _ *Record) ([]berth.Tool, error) {
	var envelope struct {
		Function berth.FunctionTool `json:"function"`
	}
	if err := t.Decode(&envelope); err != nil {
		return nil, err
	}
	f := envelope.Function
	f.Type = berth.ToolFunction
	if f.Strict == nil {
		f.Strict = new(bool)
	}
	return []berth.Tool{berth.NewTool(f)}, nil
}

// toolChoice converts a run's tool choice to that of a response. A forced choice applies to
// the first leg only; otherwise the model could never answer with a message.
func toolChoice(choice json.RawMessage, first bool) json.RawMessage {
	var named struct {
		Type     string
		Function struct{ Name string }
	}
	if json.Unmarshal(choice, &named) == nil {
		tool := map[string]string{"type": named.Type}
		if named.Function.Name != "" {
			tool["name"] = named.Function.Name
		}
		choice, _ = json.Marshal(tool) // strings always marshal
	}
	if !first && string(choice) != `"none"` {
		return json.RawMessage(`"auto"`)
	}
	return choice
}

// responseFormat converts a run's format to that of a response. It returns nil for "auto".
func responseFormat(format json.RawMessage) json.RawMessage {
	var f struct {
		Type   string                     `json:"type"`
		Schema map[string]json.RawMessage `json:"json_schema"`
	}
	if json.Unmarshal(format, &f) != nil {
		return nil
	}
	if f.Type != "json_schema" {
		return format
	}
	f.Schema["type"] = json.RawMessage(`"json_schema"`)
	raw, _ := json.Marshal(f.Schema) // raw JSON always marshals
	return raw
}

package threads

import (
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// A ToolCall is a call of a tool as a step shows it. Its type determines its other fields.
type ToolCall struct {
	ID              string           `json:"id"`
	Type            string           `json:"type"`
	Function        *Function        `json:"function,omitempty"`
	CodeInterpreter *CodeInterpreter `json:"code_interpreter,omitempty"`
	FileSearch      *FileSearch      `json:"file_search,omitempty"`
}

// A CodeInterpreter is a call of the code interpreter.
type CodeInterpreter struct {
	Input   string       `json:"input"`
	Outputs []CodeOutput `json:"outputs"`
}

// A CodeOutput is text, of type logs, or an image, as a file.
type CodeOutput struct {
	Index *int           `json:"index,omitempty"` // in a piece of a stream
	Type  string         `json:"type"`
	Logs  *string        `json:"logs,omitempty"`
	Image *FileReference `json:"image,omitempty"`
}

// A FileSearch is a call of the file search. It is empty until the search has ended.
type FileSearch struct {
	RankingOptions *SearchRanking `json:"ranking_options,omitempty"`
	Results        []SearchResult `json:"results,omitempty"`
}

// A SearchRanking states how results were ranked.
type SearchRanking struct {
	Ranker         string  `json:"ranker"` // auto or default_2024_08_21
	ScoreThreshold float64 `json:"score_threshold"`
}

// A SearchResult is a part of a file that a search found.
type SearchResult struct {
	FileID   berth.FileID    `json:"file_id"`
	FileName string          `json:"file_name"`
	Score    float64         `json:"score"`
	Content  []SearchContent `json:"content,omitempty"` // if the request includes it
}

// A SearchContent is the text of a result.
type SearchContent struct {
	Type string `json:"type"` // "text"
	Text string `json:"text"`
}

// A Function is a call of a function that the client runs.
type Function struct {
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Output    *string `json:"output"`
}

// A RequiredCall is a call that waits for its output.
type RequiredCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"` // "function"
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// A callKind describes how a step shows an item that is a call.
type callKind struct {
	client bool // the client runs the tool and submits the output
	// show returns the call of the item at index of a response's output.
	show func(r *Record, leg *berth.Response, index int) ToolCall
}

// callKinds is the table of calls that steps show. To add a tool, add a line here and one
// in toolKinds.
var callKinds = map[berth.ItemType]callKind{
	berth.ItemFunctionCall:        {client: true, show: showFunction},
	berth.ItemCodeInterpreterCall: {show: showCode},
	berth.ItemFileSearchCall:      {show: showSearch},
}

func showFunction(_ *Record, leg *berth.Response, index int) ToolCall {
	f := functionOf(leg.Output[index])
	return ToolCall{ID: f.CallID, Type: "function", Function: &Function{Name: f.Name, Arguments: f.Arguments}}
}

// showCode shows a call of the code interpreter. Its images are those that were saved.
func showCode(r *Record, leg *berth.Response, index int) ToolCall {
	var call berth.CodeInterpreterCall
	_ = leg.Output[index].Decode(&call) // items of the engine are valid
	code := &CodeInterpreter{Input: call.Code, Outputs: []CodeOutput{}}
	for n, o := range call.Outputs {
		if id := imageID(leg.ID, index, n); o.Type == "image" && r.Files[id] {
			code.Outputs = append(code.Outputs, CodeOutput{Type: "image", Image: &FileReference{id}})
		} else if o.Type == "logs" {
			code.Outputs = append(code.Outputs, CodeOutput{Type: "logs", Logs: &o.Logs})
		}
	}
	return ToolCall{ID: callID(call.ID), Type: berth.ToolCode, CodeInterpreter: code}
}

// showSearch shows a call of the file search with the content of its results.
func showSearch(r *Record, leg *berth.Response, index int) ToolCall {
	var call berth.FileSearchCall
	_ = leg.Output[index].Decode(&call) // items of the engine are valid
	search := &FileSearch{}
	found := call.Results
	if call.Berth != nil && found == nil {
		found = call.Berth.Results
	}
	if call.Status == string(berth.StatusCompleted) {
		ranking := rankingOf(&r.Run)
		search.RankingOptions, search.Results = &ranking, make([]SearchResult, len(found))
	}
	for i := range search.Results {
		f := found[i]
		search.Results[i] = SearchResult{f.FileID, f.Filename, f.Score, []SearchContent{{"text", f.Text}}}
	}
	return ToolCall{ID: callID(call.ID), Type: berth.ToolFileSearch, FileSearch: search}
}

// callID returns the id of a hosted call, which has only the id of its item.
func callID(item string) string {
	_, id, _ := strings.Cut(item, "_")
	return "call_" + id
}

// withoutContent returns calls without the content of search results.
func withoutContent(calls []ToolCall) []ToolCall {
	out := slices.Clone(calls)
	for i, c := range out {
		if c.FileSearch == nil {
			continue
		}
		search := *c.FileSearch
		search.Results = slices.Clone(search.Results)
		for n := range search.Results {
			search.Results[n].Content = nil
		}
		out[i].FileSearch = &search
	}
	return out
}

func functionOf(it berth.Item) berth.FunctionCall {
	var f berth.FunctionCall
	_ = it.Decode(&f) // items of the engine are valid
	return f
}

// toolCalls returns the calls of a part with the outputs that the client submitted, if any.
func (r *Record) toolCalls(leg *berth.Response, p *part, given *answer) []ToolCall {
	calls := make([]ToolCall, len(p.calls))
	for i, it := range p.calls {
		calls[i] = callKinds[it.Type()].show(r, leg, p.places[i])
		if given == nil || !p.needsClient() {
			continue
		}
		if n := slices.IndexFunc(given.outputs, func(o ToolOutput) bool {
			return o.ToolCallID == it.CallID()
		}); n >= 0 {
			calls[i].Function.Output = &given.outputs[n].Output
		}
	}
	return calls
}

// waiting returns the calls of a complete response that wait for outputs of the client.
func waiting(leg *berth.Response) []RequiredCall {
	var out []RequiredCall
	for _, p := range parts(leg) {
		if !p.needsClient() {
			continue
		}
		for _, it := range p.calls {
			f := functionOf(it)
			c := RequiredCall{ID: f.CallID, Type: "function"}
			c.Function.Name, c.Function.Arguments = f.Name, f.Arguments
			out = append(out, c)
		}
	}
	return out
}

package messages

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
)

// The families of the tool search of the server. Both are the server's own search; only their input differs.
const (
	familySearchRegex = "tool_search_tool_regex"
	familySearchBM25  = "tool_search_tool_bm25"
)

// searchTool returns the tool search of a request, or nil.
func (m *messageRequest) searchTool() *toolParam {
	for i := range m.Tools {
		if f := m.Tools[i].family(); f == familySearchRegex || f == familySearchBM25 {
			return &m.Tools[i]
		}
	}
	return nil
}

// A searchInput is the input of a call of the tool search: a pattern, or a query.
type searchInput struct {
	Pattern string `json:"pattern,omitempty"`
	Query   string `json:"query,omitempty"`
}

// newSearchInput returns the input that finds the tools which a model has asked for by name.
func newSearchInput(t *toolParam, names []string) json.RawMessage {
	in := searchInput{Query: strings.Join(names, " ")}
	if t.family() == familySearchRegex {
		quoted := make([]string, len(names))
		for i, name := range names {
			quoted[i] = regexp.QuoteMeta(name)
		}
		in = searchInput{Pattern: strings.Join(quoted, "|")}
	}
	raw, _ := json.Marshal(in) // texts always marshal
	return raw
}

type (
	foundTools struct {
		Type       string          `json:"type"` // "tool_search_tool_search_result"
		References []toolReference `json:"tool_references"`
	}
	toolReference struct {
		Type     string `json:"type"` // "tool_reference"
		ToolName string `json:"tool_name"`
	}
)

// readSearch reads a call of the tool search.
func (s *servedItem) readSearch(c *berth.ToolSearchCall) {
	var wanted struct {
		Paths []string `json:"paths"`
		Query string   `json:"query"`
	}
	_ = json.Unmarshal(c.Arguments, &wanted) // a model's; of another form, it names no tool
	if wanted.Query != "" {
		wanted.Paths = append(wanted.Paths, wanted.Query)
	}
	t := s.request.searchTool()
	if t == nil {
		return
	}
	id := serverID(prefixServer, c.ID)
	*s.searches = append(*s.searches, id)
	s.call(callOutput{Type: "server_tool_use", ID: id, Name: t.offeredName(),
		Input: newSearchInput(t, wanted.Paths), Caller: direct})
}

// readFound reads the result of the first search that has none.
func (s *servedItem) readFound(out *berth.ToolSearchOutput) {
	if len(*s.searches) == 0 {
		return
	}
	result := foundTools{"tool_search_tool_search_result", []toolReference{}}
	for _, t := range out.Tools {
		result.References = append(result.References, toolReference{"tool_reference", t.Name()})
	}
	s.result(resultOutput{Type: "tool_search_tool_result", ToolUseID: (*s.searches)[0], Content: result})
	*s.searches = (*s.searches)[1:]
}

// serveToolSearch adds a search of an earlier answer with the tools that it found, as far as the request still has
// them.
func (h *history) serveToolSearch(result contentBlock) {
	var found struct {
		References []toolReference `json:"tool_references"`
	}
	_ = json.Unmarshal(result.Content, &found) // an error has found no tool
	paths, tools := []string{}, []berth.Tool{}
	for _, ref := range found.References {
		paths = append(paths, ref.ToolName)
		if t, ok := h.functions[ref.ToolName]; ok {
			tools = append(tools, t)
		}
	}
	arguments, _ := json.Marshal(map[string][]string{"paths": paths}) // texts always marshal
	h.add(berth.ToolSearchCall{ID: berth.NewID(berth.PrefixToolSearch), Type: berth.ItemToolSearchCall,
		Status: berth.StatusCompleted, Arguments: arguments, Execution: berth.ExecutionServer})
	h.add(berth.ToolSearchOutput{ID: berth.NewID(berth.PrefixToolSearchOut), Type: berth.ItemToolSearchOutput,
		Status: berth.StatusCompleted, Execution: berth.ExecutionServer, Tools: tools})
}

// A functionBody is a function with the fields that only some functions have.
type functionBody struct {
	berth.FunctionTool
	Defer   bool     `json:"defer_loading,omitempty"`
	Callers []string `json:"allowed_callers,omitempty"`
}

// function returns a tool with a schema as a function. searched reports whether the request has a tool search, which
// finds the deferred functions.
func (p *toolParam) function(searched bool) functionBody {
	return functionBody{FunctionTool: berth.FunctionTool{Type: berth.ToolFunction, Name: p.Name,
		Description: p.described(), Parameters: p.InputSchema, Strict: p.strict()}, Defer: searched && p.Defer,
		Callers: p.callers()}
}

// functions returns the functions of a request by their names.
func (m *messageRequest) functions() map[string]berth.Tool {
	if m.searchTool() == nil {
		return nil
	}
	all := map[string]berth.Tool{}
	for i := range m.Tools {
		if p := &m.Tools[i]; p.family() == familyCustom && p.Defer {
			all[p.Name] = berth.NewTool(p.function(true))
		}
	}
	return all
}

// hides reports whether a deferred tool is not offered: the client itself searches, and no result of its search refers
// to the tool yet.
func (m *messageRequest) hides(p *toolParam, referenced map[string]bool) bool {
	return p.Defer && m.searchTool() == nil && !referenced[p.offeredName()]
}

// checkDeferred refuses a request whose tools are all deferred.
func (m *messageRequest) checkDeferred() error {
	for i := range m.Tools {
		if !m.Tools[i].Defer {
			return nil
		}
	}
	if len(m.Tools) == 0 {
		return nil
	}
	return berth.Invalid("tools", "At least one tool must have defer_loading=false.")
}

// searchName reports whether a call of an earlier answer is one of the tool search.
func searchName(name string) bool { return strings.HasPrefix(name, "tool_search_tool_") }

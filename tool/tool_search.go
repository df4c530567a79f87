package tool

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
)

//go:embed tool_search.md
var searchDescription string

//go:embed tool_search.json
var searchParameters json.RawMessage

// SearchName is the function under which a model sees the search for tools.
const SearchName = "tool_search"

// A Search finds tools that the client has not shown yet. The client searches;
// what it finds is bound with the response that brings it.
type Search struct {
	client
	tool berth.ToolSearchTool
}

var _ Tool = Search{}

// NewSearch returns a search that the client does.
func NewSearch(tool berth.ToolSearchTool) Search { return Search{tool: tool} }

func (s Search) Spec() Spec {
	parameters := s.tool.Parameters
	if len(parameters) == 0 || string(parameters) == "null" {
		parameters = searchParameters
	}
	return Spec{Function: builtIn(SearchName, cmp.Or(s.tool.Description, searchDescription), parameters), Call: berth.ItemToolSearchCall, Client: true}
}

func (Search) NewCall(callID string) Call {
	return &searchCall{item: berth.ToolSearchCall{ID: berth.NewID(berth.PrefixToolSearch), Type: berth.ItemToolSearchCall,
		Status: berth.StatusInProgress, Arguments: json.RawMessage("{}"), CallID: callID, Execution: "client"}}
}

func lowerSearchCall(item berth.Item) (name, arguments string, err error) {
	var call berth.ToolSearchCall
	err = item.Decode(&call)
	return SearchName, string(call.Arguments), err
}

// lowerSearchOutput names what was found. The functions themselves are among those
// that the model is given.
func lowerSearchOutput(item berth.Item) (json.RawMessage, error) {
	tools, err := Found(item)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range tools {
		if t.Type() != berth.ToolNamespace {
			names = append(names, cmp.Or(t.Name(), t.Type()))
			continue
		}
		var n berth.NamespaceTool
		if err := t.Decode(&n); err != nil {
			return nil, err
		}
		for _, inner := range n.Tools {
			names = append(names, FunctionName(n.Name, inner.Name()))
		}
	}
	if len(names) == 0 {
		return berth.StringDelta("No tools were found."), nil
	}
	return berth.StringDelta("These can be called now: " + strings.Join(names, ", ")), nil
}

// Found returns the tools that an item offers beside those of its request: what a
// search found, or additional_tools.
func Found(item berth.Item) ([]berth.Tool, error) {
	if item.Type() != berth.ItemToolSearchOutput && item.Type() != berth.ItemAdditionalTools {
		return nil, nil
	}
	var body struct {
		Tools []berth.Tool `json:"tools"`
	}
	err := item.Decode(&body)
	return body.Tools, err
}

// A searchCall is one call. The wire shows it when it is complete.
type searchCall struct {
	clientCall
	item  berth.ToolSearchCall
	valid bool
}

func (c *searchCall) Item() berth.Item {
	if !c.valid {
		return berth.Item{}
	}
	return berth.NewItem(c.item)
}

func (c *searchCall) Write(string) []berth.Event { return nil }

func (c *searchCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) != nil || object == nil {
		return nil, berth.Item{}, "The arguments of this call are not a JSON object. Nothing was searched."
	}
	c.valid = true
	closed := c.item
	closed.Status, closed.Arguments = berth.StatusCompleted, json.RawMessage(arguments)
	return nil, berth.NewItem(closed), ""
}

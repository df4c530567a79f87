package search

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

//go:embed server.md
var serverDescription string

//go:embed server.json
var serverParameters json.RawMessage

// A serverTool searches the deferred tools of the request. The engine binds what a search
// finds.
type serverTool struct {
	search  berth.ToolSearchTool
	entries []entry
}

var _ tool.Tool = (*serverTool)(nil)

// Spec implements tool.Tool.
func (s *serverTool) Spec() tool.Spec {
	text := cmp.Or(s.search.Description, serverDescription) + catalogue(s.entries)
	return tool.Spec{Function: tool.Function(name, text, serverParameters), Call: berth.ItemToolSearchCall}
}

// NewCall implements tool.Tool. As on the hosted service, the items have no call_id.
func (s *serverTool) NewCall(string) tool.Call {
	return &serverCall{searchCall: searchCall{item: berth.ToolSearchCall{ID: berth.NewID(berth.PrefixToolSearch),
		Type:   berth.ItemToolSearchCall,
		Status: berth.StatusInProgress, Arguments: json.RawMessage("{}"), Execution: berth.ExecutionServer}}, tool: s,
		output: -1}
}

// ResumeCall implements tool.Tool. A search may run twice.
func (s *serverTool) ResumeCall(item, output berth.Item, stored []berth.Event) (tool.Call, error) {
	if item.Status() == berth.StatusIncomplete {
		return nil, nil
	}
	c := &serverCall{tool: s, output: -1}
	if err := item.Decode(&c.item); err != nil {
		return nil, err
	}
	for _, ev := range stored {
		if !output.IsZero() && ev.OutputIndex != nil {
			c.output, c.outputID = *ev.OutputIndex, output.ID()
		}
	}
	c.arguments = c.item.Arguments
	return c, nil
}

// A serverCall is one search by the server.
type serverCall struct {
	searchCall
	tool      *serverTool
	arguments json.RawMessage
	output    int // the place of the output, which a run before a crash has opened; or -1
	outputID  string
}

func (c *serverCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	c.arguments = json.RawMessage(arguments)
	return c.searchCall.Close(arguments)
}

// Run implements tool.Call.
func (c *serverCall) Run(ctx context.Context, out tool.Emitter) error {
	var wanted struct {
		Paths []string `json:"paths"`
		Query string   `json:"query"` // models sometimes write one
	}
	if err := json.Unmarshal(c.arguments, &wanted); err != nil {
		wanted.Paths = nil // then nothing is found
	}
	if wanted.Query != "" {
		wanted.Paths = append(wanted.Paths, wanted.Query)
	}
	found := berth.ToolSearchOutput{ID: c.outputID, Type: berth.ItemToolSearchOutput, Status: berth.StatusInProgress,
		Execution: berth.ExecutionServer, Tools: append([]berth.Tool{}, find(c.tool.entries, wanted.Paths)...)}
	if c.output < 0 {
		found.ID = berth.NewID(berth.PrefixToolSearchOut)
		var err error
		if c.output, err = out.Add(ctx, berth.NewItem(found)); err != nil {
			return err
		}
	}
	found.Status = berth.StatusCompleted
	return out.Done(ctx, c.output, berth.NewItem(found))
}

package modeltest

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// ownCalls holds the types of the vendor's own tools, and those of their calls.
var ownCalls = map[string]string{"image_generation": "image_generation_call", "computer": "computer_call",
	"computer_use_preview": "computer_call"}

// ownTool returns a custom tool or one of the vendor's own, or nil for another.
func (c *check) ownTool(raw json.RawMessage) *berth.FunctionTool {
	var t berth.Tool
	if json.Unmarshal(raw, &t) != nil {
		return nil
	}
	if t.Type() == berth.ToolCustom {
		var custom berth.CustomTool
		c.strictly(raw, "a custom tool", &custom)
		return &berth.FunctionTool{Type: t.Type(), Name: custom.Name, Description: custom.Description, Custom: &custom}
	}
	if ownCalls[t.Type()] == "" {
		return nil
	}
	return &berth.FunctionTool{Type: t.Type(), Name: t.Type(), Native: &t}
}

// own checks an item of the vendor's own tools, and records it as a message with the JSON of
// the item: a call as the assistant's, an output as a tool's.
func (in *responsesInput) own(i int, kind string, raw json.RawMessage, got *Request) {
	var it struct {
		ID     string          `json:"id"`
		CallID string          `json:"call_id"`
		Result string          `json:"result"`
		Output json.RawMessage `json:"output"`
		Berth  json.RawMessage `json:"berth"`
	}
	in.want(json.Unmarshal(raw, &it) == nil, "Invalid 'input[%d]'", i)
	in.want(it.Berth == nil, "Unknown parameter: 'input[%d].berth'.", i)
	switch kind {
	case "image_generation_call":
		in.want(it.ID != "" && it.Result != "", "Missing required parameter: 'input[%d].result'.", i)
	case "computer_call":
		in.want(it.ID != "" && it.CallID != "", "Missing required parameter: 'input[%d].call_id'.", i)
		in.owned = append(in.owned, it.CallID)
	case "computer_call_output":
		in.want(contains(it.CallID, in.owned...), "No tool call found for computer call with call_id %s.", it.CallID)
		in.owned = deleted(in.owned, it.CallID)
		in.end(got)
		got.Messages = append(got.Messages, Message{Role: "tool", Text: string(raw)})
	}
}

// deleted returns a list without a value.
func deleted(list []string, value string) (rest []string) {
	for _, v := range list {
		if v != value {
			rest = append(rest, v)
		}
	}
	return rest
}

// native writes a step of an item of the vendor's own tools.
func (s *responsesWriter) native(step model.Native) bool {
	if step.Event.Type == berth.EventOutputItemAdded {
		if !s.close() {
			return false
		}
		if s.places == nil {
			s.places = map[int]int{}
		}
		s.places[step.Index] = len(s.output)
		return s.add(step.Event.Item)
	}
	place := s.places[step.Index]
	if step.Event.Type == berth.EventOutputItemDone {
		return s.done(place, step.Event.Item)
	}
	raw, err := json.Marshal(step.Event)
	if err != nil {
		panic(err) // an event always marshals
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		panic(err)
	}
	fields["output_index"] = place
	return s.emit(string(step.Event.Type), fields)
}

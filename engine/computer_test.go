package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

const (
	withComputer = `{"model":"played","tools":[{"type":"computer"}]`
	withPreview  = `{"model":"played","truncation":"auto","tools":[{"type":"computer_use_preview","environment":"browser","display_width":1024,"display_height":768}]`
	screenshot   = `"type":"computer_call_output","call_id":"call_1","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,aW1n"}`
)

// Every type of action goes to the client with its own fields, and back to the model.
func TestComputerActions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, tc := range []struct{ wrote, want string }{
			{`{"type":"click","x":10.4,"y":20}`, `{"type":"click","button":"left","x":10,"y":20}`},
			{`{"type":"click","button":"right","x":1,"y":2,"keys":["SHIFT"],"text":"no"}`,
				`{"type":"click","button":"right","x":1,"y":2,"keys":["SHIFT"]}`},
			{`{"type":"double_click","x":1,"y":2}`, `{"type":"double_click","x":1,"y":2,"keys":null}`},
			{`{"type":"drag","path":[{"x":1,"y":2},{"x":3,"y":4}]}`,
				`{"type":"drag","path":[{"x":1,"y":2},{"x":3,"y":4}]}`},
			{`{"type":"keypress","keys":["CTRL","C"]}`, `{"type":"keypress","keys":["CTRL","C"]}`},
			{`{"type":"move","x":0,"y":0}`, `{"type":"move","x":0,"y":0}`},
			{`{"type":"screenshot"}`, `{"type":"screenshot"}`},
			{`{"type":"scroll","x":1,"y":2,"scroll_y":-300}`,
				`{"type":"scroll","x":1,"y":2,"scroll_x":0,"scroll_y":-300}`},
			{`{"type":"type","text":""}`, `{"type":"type","text":""}`},
			{`{"type":"wait"}`, `{"type":"wait"}`},
		} {
			for _, tool := range []struct{ head, function, field, wrote, want string }{
				{withComputer, "computer", "actions", `{"actions":[` + tc.wrote + `,{"type":"screenshot"}]}`,
					`[` + tc.want + `,{"type":"screenshot"}]`},
				{withPreview, "computer_use_preview", "action", `{"action":` + tc.wrote + `}`, tc.want},
			} {
				h := newHouse(t, call("call_1", tool.function, tool.wrote), say("done"))
				first := h.final(h.create(tool.head + `,"input":"x"}`).ID)
				var got map[string]any
				decode(t, first.Output[0], &got)
				if !sameJSON(t, asJSON(t, got[tool.field]), tool.want) || got["type"] != "computer_call" ||
					got["status"] != "completed" || !strings.HasPrefix(got["id"].(string), "cu_") ||
					asJSON(t, got["pending_safety_checks"]) != "[]" {
					t.Errorf("%s %s: the item is %s", tool.function, tc.wrote, first.Output[0])
				}
				h.final(h.create(tool.head + `,"previous_response_id":"` + string(first.ID) + `","input":[{` +
					screenshot + `,"current_url":"https://a.test/x"}]}`).ID)
				items := h.model.requests[1].Items
				var c berth.FunctionCall
				decode(t, items[1], &c)
				if c.Name != tool.function || !sameJSON(t, c.Arguments, `{"`+tool.field+`":`+tool.want+`}`) {
					t.Errorf("the model saw the call %s %s", c.Name, c.Arguments)
				}
				if saw := items[2].String(); !strings.Contains(saw, `"input_image"`) || !strings.Contains(saw,
					"data:image/png;base64,aW1n") || !strings.Contains(saw, "https://a.test/x") ||
					!strings.Contains(saw, "It is data") {
					t.Errorf("the model saw the output %s", saw)
				}
			}
		}
	})
}

// The call is shown when it is complete.
func TestComputerEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "computer", `{"actions":[{"type":"screenshot"}]}`))
		id := h.create(withComputer + `,"input":"x"}`).ID
		h.final(id)
		var got []string
		for _, ev := range h.events(id) {
			line := string(ev.Type)
			if ev.Item != nil {
				line += " " + string(ev.Item.Status())
			}
			got = append(got, line)
		}
		want := []string{"response.created", "response.in_progress", "response.output_item.added in_progress",
			"response.output_item.done completed", "response.completed"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// Calls that the client could not carry out are refused to the model.
func TestComputerRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, tc := range []struct{ function, wrote, want string }{
			{"computer", `{"actions":[]}`, "no action"},
			{"computer", `{"actions":"click"}`, "not valid"},
			{"computer", `{"actions":[{"type":"screenshot"},{"type":"hover","x":1,"y":1}]}`,
				`Action 2 of this call is not valid: there is no action of type \"hover\"`},
			{"computer", `{"actions":[{"type":"click","x":1}]}`, `click needs \"x\" and \"y\"`},
			{"computer", `{"actions":[{"type":"click","x":-1,"y":0}]}`, "not on the display"},
			{"computer", `{"actions":[{"type":"click","x":1,"y":0,"button":"middle"}]}`, "no button"},
			{"computer", `{"actions":[{"type":"drag","path":[{"x":1,"y":1}]}]}`, "at least two points"},
			{"computer", `{"actions":[{"type":"keypress"}]}`, "a keypress needs"},
			{"computer", `{"actions":[{"type":"type"}]}`, "type needs"},
			{"computer_use_preview", `{"action":{"type":"click","x":1024,"y":0}}`,
				"not on the display of 1024 × 768 pixels"},
			{"computer_use_preview", `{"actions":[{"type":"wait"},{"type":"wait"}]}`, "more than one action"},
		} {
			head := map[string]string{"computer": withComputer, "computer_use_preview": withPreview}[tc.function]
			h := newHouse(t, call("call_1", tc.function, tc.wrote), say("sorry"))
			r := h.final(h.create(head + `,"input":"x"}`).ID)
			if diff := cmp.Diff([]string{"message completed sorry"}, outline(t, r.Output)); diff != "" {
				t.Errorf("%s: output (-want +got):\n%s", tc.wrote, diff)
			}
			if saw := asJSON(t, h.model.requests[1].Items); !strings.Contains(saw, tc.want) {
				t.Errorf("%s: the model saw %s, want %q", tc.wrote, saw, tc.want)
			}
		}
	})
}

// The client must acknowledge the safety checks of a call.
func TestSafetyChecks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "computer",
			`{"actions":[{"type":"click","x":1,"y":2}],"safety_checks":["This buys a ticket."]}`), say("bought"))
		first := h.final(h.create(withComputer + `,"input":"x"}`).ID)
		var c berth.ComputerCall
		decode(t, first.Output[0], &c)
		if len(c.PendingSafetyChecks) != 1 || *c.PendingSafetyChecks[0].Message != "This buys a ticket." {
			t.Fatalf("the call is %s", first.Output[0])
		}
		id := c.PendingSafetyChecks[0].ID
		next := withComputer + `,"previous_response_id":"` + string(first.ID) + `","input":[{` + screenshot
		_, err := h.tryCreate(t.Context(), next+`}]}`)
		if e, ok := err.(*berth.Error); !ok || e.Code != berth.CodeInvalid || e.Param != "acknowledged_safety_checks" ||
			!strings.Contains(e.Message, id) {
			t.Errorf("without the acknowledgement: %v", err)
		}
		h.final(h.create(next + `,"acknowledged_safety_checks":[{"id":"` + id + `"}]}]}`).ID)
		if saw := asJSON(t, h.model.requests[1].Items); !strings.Contains(saw, "The user agreed to this call.") ||
			!strings.Contains(saw, "This buys a ticket.") {
			t.Errorf("the model saw %s", saw)
		}
	})
}

// A screenshot may be a file.
func TestScreenshotFile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("a cat"))
		const c = `{"model":"played","input":[{"type":"computer_call","call_id":"c","actions":[{"type":"screenshot"}]},{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","file_id":"FILE"}}]}`
		h.final(h.create(strings.Replace(c, "FILE", "file-cat", 1)).ID)
		if saw := asJSON(t, h.model.requests[0].Items[1]); !strings.Contains(saw, `"data:image/png;base64,bWVvdw=="`) ||
			strings.Contains(saw, "file_id") {
			t.Errorf("the model saw %s", saw)
		}
		if _, err := h.tryCreate(t.Context(), strings.Replace(c, "FILE", "file-text", 1)); err == nil ||
			!strings.Contains(err.Error(), "is not an image") {
			t.Errorf("a file that is no image: %v", err)
		}
	})
}

// An output of another kind does not answer a call.
func TestOutputOfAnotherKind(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "computer", `{"actions":[{"type":"screenshot"}]}`))
		first := h.final(h.create(withComputer + `,"input":"x"}`).ID)
		for _, output := range []string{
			`"type":"function_call_output","output":"x"`,
			`"type":"custom_tool_call_output","output":"x"`,
			`"type":"shell_call_output","output":[]`,
			`"type":"tool_search_output","execution":"client","tools":[]`,
		} {
			body := withComputer + `,"previous_response_id":"` + string(first.ID) + `","input":[{"call_id":"call_1",` +
				output + `}]}`
			if _, err := h.tryCreate(t.Context(), body); err == nil || !strings.Contains(err.Error(),
				"No tool call found for") {
				t.Errorf("%s: got %v, want a refusal", output, err)
			}
		}
	})
}

package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
)

// outlineRun formats a run's stream with one event per line, deltas with their content.
func outlineRun(t *testing.T, events []sse.Event) string {
	t.Helper()
	var b strings.Builder
	for _, ev := range events {
		if ev.Type == "done" {
			continue
		}
		var o object
		check(t, json.Unmarshal(ev.Data, &o))
		b.WriteString(strings.TrimPrefix(strings.TrimPrefix(ev.Type, "thread."), "run."))
		for _, path := range [][]any{{"type"}, {"delta", "content", 0, "text", "value"},
			{"delta", "content", 0, "refusal"}, {"incomplete_details", "reason"}, {"last_error", "code"},
			{"delta", "step_details", "tool_calls", 0, "index"}, {"delta", "step_details", "tool_calls", 0, "function",
				"name"}, {"delta", "step_details", "tool_calls", 0, "function", "arguments"}} {
			if v := o.at(path...); v != nil {
				fmt.Fprintf(&b, " %v", v)
			}
		}
		b.WriteString("\n")
	}
	return strings.NewReplacer("step.created", "step", " message_creation", " message", " tool_calls",
		" calls").Replace(b.String())
}

// begun holds the first events of every stream of a new run.
const begun = "created\nqueued\nin_progress\n"

func opened(kind string) string { return "step " + kind + "\nstep.in_progress " + kind + "\n" }

const saying = "message.created\nmessage.in_progress\n"

func TestRunStreams(t *testing.T) {
	t.Parallel()
	call := func(id, city string) []any {
		return []any{model.Call{ID: id, Name: "weather"}, model.Call{Arguments: `{"city":`},
			model.Call{Arguments: `"` + city + `"}`}}
	}
	tests := []struct {
		name   string
		plays  [][]any
		want   string
		status string // of the run
	}{
		{"text", [][]any{turn(model.Text{Text: "Aye"}, model.Text{Text: "."}, stopped)},
			begun + opened("message") + saying +
				"message.delta Aye\nmessage.delta .\nmessage.completed\nstep.completed message\ncompleted\n",
			"completed"},
		{"reasoning is not shown", [][]any{turn(model.Thought{Text: "Hm."}, model.Text{Text: "Aye"}, stopped)},
			begun + opened("message") + saying +
				"message.delta Aye\nmessage.completed\nstep.completed message\ncompleted\n", "completed"},
		{"refusal", [][]any{turn(model.Refusal{Text: "No"}, stopped)},
			begun + opened("message") + saying +
				"message.delta No\nmessage.completed\nstep.completed message\ncompleted\n", "completed"},
		{"text, then refusal", [][]any{turn(model.Text{Text: "Aye"}, model.Refusal{Text: "No"}, stopped)},
			begun + opened("message") + saying +
				"message.delta Aye\nmessage.delta No\nmessage.completed\nstep.completed message\ncompleted\n",
			"completed"},
		{"two calls",
			[][]any{append(append(call("call_1", "Kiel"), model.Call{Index: 1, ID: "call_2", Name: "weather"},
				model.Call{Index: 1, Arguments: "{}"}), stopped)},
			begun + opened("calls") +
				"step.delta 0 weather \nstep.delta 0 {\"city\":\nstep.delta 0 \"Kiel\"}\nstep.delta 1 weather \nstep.delta 1 {}\nrequires_action\n",
			"requires_action"},
		{"text, then a call",
			[][]any{append(append([]any{model.Text{Text: "Wait."}}, call("call_1", "Kiel")...), stopped)},
			begun + opened("message") + saying + "message.delta Wait.\nmessage.completed\nstep.completed message\n" +
				opened("calls") +
				"step.delta 0 weather \nstep.delta 0 {\"city\":\nstep.delta 0 \"Kiel\"}\nrequires_action\n",
			"requires_action"},
		{"a call, then text", [][]any{append(append(call("call_1", "Kiel"), model.Text{Text: "Wait."}), stopped)},
			begun + opened("calls") + "step.delta 0 weather \nstep.delta 0 {\"city\":\nstep.delta 0 \"Kiel\"}\n" +
				saying + "message.delta Wait.\nmessage.completed\nrequires_action\n", "requires_action"},
		{"cut", [][]any{turn(model.Text{Text: "Aye"}, cutShort)},
			begun + opened("message") + saying +
				"message.delta Aye\nmessage.incomplete max_tokens\nstep.completed message\nincomplete max_completion_tokens\n",
			"incomplete"},
		{"filtered", [][]any{turn(model.Text{Text: "Aye"}, filtered)},
			begun + opened("message") + saying +
				"message.delta Aye\nmessage.incomplete content_filter\nstep.completed message\nincomplete\n",
			"incomplete"},
		{"refused upstream", [][]any{turn(lasting)}, begun + "failed invalid_prompt\n", "failed"},
		{"failed in the middle", [][]any{turn(model.Text{Text: "Aye"}, lasting)},
			begun + opened("message") + saying +
				"message.delta Aye\nmessage.incomplete run_failed\nstep.failed message server_error\nfailed invalid_prompt\n",
			"failed"},
		{"asked again", [][]any{turn(model.Text{Text: "Ay"}, passing), turn(model.Text{Text: "Aye"}, stopped)},
			begun + opened("message") + saying +
				"message.delta Ay\nmessage.incomplete run_failed\nstep.failed message server_error\n" +
				opened("message") + saying +
				"message.delta Aye\nmessage.completed\nstep.completed message\ncompleted\n", "completed"},
		{"a function that was not offered",
			[][]any{turn(model.Call{ID: "call_1", Name: "sail"}, model.Call{Arguments: "{}"}, stopped),
				turn(model.Text{Text: "Aye"}, stopped)},
			begun + opened("message") + saying +
				"message.delta Aye\nmessage.completed\nstep.completed message\ncompleted\n", "completed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := playing(t, tt.plays...)
			a := h.call(200, "POST", "/v1/assistants", `{"model":"played",`+forecast+`}`).id()
			thread := h.thread("hi")
			events := h.rest(h.stream(t.Context(), "POST", thread+"/runs", `{"assistant_id":"`+a+`","stream":true}`))
			if diff := cmp.Diff(tt.want, outlineRun(t, events)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			h.sameAsKept(thread, events, tt.status)
		})
	}
}

// Clients expect one step at a time. A message after calls is sent immediately, its step when
// the calls have outputs.
func TestStepAfterCallsIsSentLater(t *testing.T) {
	t.Parallel()
	h, _ := playing(t, turn(model.Call{ID: "call_1", Name: "weather"}, model.Call{Arguments: "{}"},
		model.Text{Text: "Wait."}, stopped), turn(model.Text{Text: "Rain."}, stopped))
	a := h.call(200, "POST", "/v1/assistants", `{"model":"played",`+forecast+`}`).id()
	thread := h.thread("hi")
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+a+`"}`)
	h.polled(thread + "/runs/" + run.id())
	events := h.rest(h.stream(t.Context(), "POST", thread+"/runs/"+run.id()+"/submit_tool_outputs",
		`{"stream":true,"tool_outputs":[{"tool_call_id":"call_1","output":"rain"}]}`))
	want := "step.completed calls\n" + opened("message") + "step.completed message\nqueued\nin_progress\n" +
		opened("message") + saying + "message.delta Rain.\nmessage.completed\nstep.completed message\ncompleted\n"
	if diff := cmp.Diff(want, outlineRun(t, events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := texts(h.call(200, "GET", thread+"/messages?order=asc", nil)); !cmp.Equal(got,
		[]string{"user: hi", "assistant: Wait.", "assistant: Rain."}) {
		t.Errorf("messages: got %q", got)
	}
}

// sameAsKept checks that the last versions of a run, its steps and messages in a stream
// equal the stored ones, and that no list contains interrupted ones.
func (h *house) sameAsKept(thread string, events []sse.Event, status string) {
	h.t.Helper()
	sent := map[string]object{}
	var run object
	for _, ev := range events[:len(events)-1] {
		var o object
		check(h.t, json.Unmarshal(ev.Data, &o))
		switch o["object"] {
		case "thread.run":
			run = o
		case "thread.run.step", "thread.message":
			sent[o.id()] = o
		}
	}
	if run["status"] != status {
		h.t.Errorf("the run was sent as %v, want %s", run["status"], status)
	}
	path := thread + "/runs/" + run.id()
	if diff := cmp.Diff(run, h.call(200, "GET", path, nil)); diff != "" {
		h.t.Errorf("the run (-sent +stored):\n%s", diff)
	}
	stored := 0
	for _, list := range []string{path + "/steps", thread + "/messages?run_id=" + run.id()} {
		for _, v := range h.call(200, "GET", list, nil)["data"].([]any) {
			stored++
			o := object(v.(map[string]any))
			switch {
			case o["status"] == "in_progress":
				continue // its last delta is not an object
			case sent[o.id()] == nil && status == "requires_action":
				stored-- // it is sent when the step before it has ended
				continue
			}
			if diff := cmp.Diff(sent[o.id()], o); diff != "" {
				h.t.Errorf("%s (-sent +stored):\n%s", o.id(), diff)
			}
		}
	}
	for id, o := range sent {
		given := o["status"] == "failed" &&
			o.at("last_error", "message") == "The answer was interrupted and is being generated again." ||
			o["status"] == "incomplete" && status == "completed"
		if !given {
			continue
		}
		stored++
		kind := map[any]string{"thread.message": thread + "/messages/", "thread.run.step": path +
			"/steps/"}[o["object"]]
		h.call(404, "GET", kind+id, nil)
	}
	if stored != len(sent) {
		h.t.Errorf("%d steps and messages were sent, %d are stored", len(sent), stored)
	}
}

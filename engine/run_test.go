package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

const withShell = `"model":"played","tools":[{"type":"shell","environment":{"type":"container_auto"}}]`

func TestText(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Text{Text: "Hel"}, model.Text{Text: "lo"}})
		r := h.create(`{"model":"played","input":"hi"}`)
		want := []string{"response.created", "response.in_progress", "response.output_item.added",
			"response.content_part.added",
			"response.output_text.delta", "response.output_text.done", "response.content_part.done",
			"response.output_item.done", "response.completed"}
		if diff := cmp.Diff(want, types(h.events(r.ID))); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		got := h.final(r.ID)
		if diff := cmp.Diff([]string{"message completed Hello"}, outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if got.Status != berth.StatusCompleted || got.CompletedAt == nil || got.Usage == nil ||
			got.Usage.TotalTokens != 15 {
			t.Errorf("status %s, completed at %v, usage %v", got.Status, got.CompletedAt, got.Usage)
		}
	})
}

// The order of a shell call's events is that recorded from the hosted service.
func TestShell(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["ls"]}`), say("done"))
		r := h.create(`{` + withShell + `,"input":"list"}`)
		events := h.events(r.ID)
		want := []string{"response.created", "response.in_progress",
			"response.output_item.added", "response.shell_call_command.added", "response.shell_call_command.delta",
			"response.shell_call_command.done", "response.output_item.done",
			"response.output_item.added", "response.shell_call_output_content.delta",
			"response.shell_call_output_content.done", "response.output_item.done",
			"response.output_item.added", "response.content_part.added", "response.output_text.delta",
			"response.output_text.done", "response.content_part.done", "response.output_item.done",
			"response.completed"}
		if diff := cmp.Diff(want, types(events)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		for _, ev := range events {
			if ev.Response == nil && ev.OutputIndex == nil {
				t.Errorf("%s has no output_index", ev.Type)
			}
		}
		got := h.final(r.ID)
		if diff := cmp.Diff([]string{"shell_call completed ls", "shell_call_output completed [ls ran exit 0]",
			"message completed done"}, outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if tools := asJSON(t, got.Tools); !strings.Contains(tools, `"container_reference"`) || !strings.Contains(tools,
			`"cntr_1"`) {
			t.Errorf("tools do not name the container: %s", tools)
		}
		second := h.model.requests[1].Items
		if n := len(second); n != 3 || second[1].Type() != berth.ItemFunctionCall ||
			second[2].Type() != berth.ItemFunctionCallOutput {
			t.Errorf("the second turn saw %d items: %v", n, second)
		}
	})
}

func TestChainAndFork(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["one"]}`), say("first"), say("left"), say("right"))
		first := h.final(h.create(`{` + withShell + `,"input":"a"}`).ID)
		for _, answer := range []string{"left", "right"} {
			child := h.final(h.create(`{` + withShell + `,"input":"b","previous_response_id":"` + string(first.ID) +
				`"}`).ID)
			if diff := cmp.Diff([]string{"message completed " + answer}, outline(t, child.Output)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if asJSON(t, child.Tools) != asJSON(t, first.Tools) {
				t.Errorf("the child has another container: %s", asJSON(t, child.Tools))
			}
		}
		for i, req := range h.model.requests[2:] {
			if len(req.Items) != 5 { // a, call, output, first, b
				t.Errorf("child %d: the model saw %d items, want 5", i, len(req.Items))
			}
		}
		if h.containers.made != 1 {
			t.Errorf("%d containers were made for one chain", h.containers.made)
		}
	})
}

func TestFunctionRoundTrip(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const tools = `"model":"played","tools":[{"type":"function","name":"add","parameters":{}}]`
		h := newHouse(t, turn{model.Text{Text: "Let me add."},
			model.Call{ID: "call_a", Name: "add", Arguments: `{"a":`}, model.Call{Arguments: `1}`}}, say("2"))
		r := h.final(h.create(`{` + tools + `,"input":"1+1"}`).ID)
		if diff := cmp.Diff([]string{"message completed Let me add.", `function_call completed add{"a":1}`},
			outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		previous := `,"previous_response_id":"` + string(r.ID) + `"}`
		_, err := h.tryCreate(t.Context(), `{`+tools+`,"input":"well?"`+previous)
		if err == nil || !strings.Contains(err.Error(), "No tool output found for function call call_a.") {
			t.Errorf("a call without output: got %v", err)
		}
		_, err = h.tryCreate(t.Context(),
			`{`+tools+`,"input":[{"type":"function_call_output","call_id":"call_x","output":"2"}]`+previous)
		if err == nil || !strings.Contains(err.Error(),
			"No tool call found for function call output with call_id call_x.") {
			t.Errorf("an output without call: got %v", err)
		}
		r = h.final(h.create(`{` + tools +
			`,"input":[{"type":"function_call_output","call_id":"call_a","output":"2"}]` + previous).ID)
		if diff := cmp.Diff([]string{"message completed 2"}, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestParallelCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{
			model.Call{Index: 0, ID: "call_1", Name: "shell", Arguments: `{"commands":`},
			model.Call{Index: 1, ID: "call_2", Name: "shell", Arguments: `{"commands":["b"]`},
			model.Call{Index: 0, Arguments: `["a"]}`},
			model.Call{Index: 1, Arguments: `}`},
		}, say("ok"))
		r := h.final(h.create(`{` + withShell + `,"input":"x"}`).ID)
		want := []string{"shell_call completed a", "shell_call completed b",
			"shell_call_output completed [a ran exit 0]", "shell_call_output completed [b ran exit 0]",
			"message completed ok"}
		if diff := cmp.Diff(want, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestBadCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, tool, arguments, want string
	}{
		{"broken JSON", "shell", `{"commands":["ls`, "not valid"},
		{"no commands", "shell", `{}`, "no commands"},
		{"wrong type", "shell", `{"commands":[1]}`, "not valid"},
		{"bad timeout", "shell", `{"commands":["ls"],"timeout_ms":-1}`, "timeout_ms"},
	} {
		runInBubble(t, tc.name, func(t *testing.T) {
			h := newHouse(t, turn{model.Call{ID: "call_1", Name: tc.tool, Arguments: tc.arguments}}, say("sorry"))
			r := h.final(h.create(`{` + withShell + `,"input":"x"}`).ID)
			if r.Status != berth.StatusCompleted || !strings.Contains(asJSON(t, r.Output), tc.want) {
				t.Errorf("status %s, output %v: the model was not shown %q", r.Status, outline(t, r.Output), tc.want)
			}
			if len(h.containers.ran) > 0 {
				t.Errorf("ran %q", h.containers.ran)
			}
			if len(h.model.requests) != 2 {
				t.Fatalf("the model was called %d times, want twice", len(h.model.requests))
			}
			if got := asJSON(t, h.model.requests[1].Items); !strings.Contains(got, tc.want) {
				t.Errorf("the model saw %s", got)
			}
		})
	}
}

// max_tool_calls takes effect before a side effect: calls above it do not run.
func TestMaxToolCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		two := turn{
			model.Call{Index: 0, ID: "call_1", Name: "shell", Arguments: `{"commands":["a"]}`},
			model.Call{Index: 1, ID: "call_2", Name: "shell", Arguments: `{"commands":["b"]}`},
		}
		h := newHouse(t, two, shell("call_3", `{"commands":["c"]}`), say("never called"))
		r := h.final(h.create(`{` + withShell + `,"input":"x","max_tool_calls":1}`).ID)
		if diff := cmp.Diff([]string{"a"}, h.containers.ran); diff != "" {
			t.Errorf("commands run (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"shell_call completed a", "shell_call_output completed [a ran exit 0]"},
			outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if n := len(h.model.requests[1].Tools); n != 0 {
			t.Errorf("%d tools were still offered", n)
		}
	})
}

// A forced choice binds the first turn only.
func TestToolChoice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["a"]}`), say("ok"))
		h.final(h.create(`{` + withShell + `,"input":"x","tool_choice":{"type":"shell"}}`).ID)
		want := []model.ToolChoice{{Mode: "function", Name: "shell"}, {Mode: "auto"}}
		if diff := cmp.Diff(want, []model.ToolChoice{h.model.requests[0].ToolChoice,
			h.model.requests[1].ToolChoice}); diff != "" {
			t.Errorf("choices (-want +got):\n%s", diff)
		}
		_, err := h.tryCreate(t.Context(),
			`{`+withShell+`,"input":"x","tool_choice":{"type":"function","name":"nope"}}`)
		if berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("a choice that is not offered: got %v", err)
		}
	})
}

func TestOutputLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Text{Text: "long"}, model.Finish{Reason: model.FinishLength}})
		r := h.final(h.create(`{"model":"played","input":"x","max_output_tokens":16}`).ID)
		if r.Status != berth.StatusIncomplete || r.IncompleteDetails == nil ||
			r.IncompleteDetails.Reason != "max_output_tokens" {
			t.Errorf("got %s %v", r.Status, r.IncompleteDetails)
		}
		if got := outline(t, r.Output); !slices.Equal(got, []string{"message incomplete long"}) {
			t.Errorf("the message that was cut: got %q", got)
		}
		// A call that was cut does not run, and the bound is over all turns together.
		h = newHouse(t, turn{model.Call{ID: "call_1", Name: "shell", Arguments: `{"commands":["rm`},
			model.Finish{Reason: model.FinishLength}})
		r = h.final(h.create(`{` + withShell + `,"input":"x"}`).ID)
		if r.Status != berth.StatusIncomplete || len(h.containers.ran) > 0 {
			t.Errorf("got %s, ran %q", r.Status, h.containers.ran)
		}
		h = newHouse(t, shell("call_1", `{"commands":["a"]}`), shell("call_2", `{"commands":["b"]}`),
			shell("call_3", `{"commands":["c"]}`), shell("call_4", `{"commands":["d"]}`))
		r = h.final(h.create(`{` + withShell + `,"input":"x","max_output_tokens":16}`).ID)
		if limit := h.model.requests[1].MaxOutputTokens; r.Status != berth.StatusIncomplete || limit != 11 {
			t.Errorf("got %s; the second turn was allowed %d tokens, want 11", r.Status, limit)
		}
	})
}

// A message that max_output_tokens cut off is in the context of the next response. The
// rest of a turn that was retried is not.
func TestCutMessageInContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Text{Text: "left over"}, berth.Errorf(berth.CodeUpstream, "cut")},
			turn{model.Text{Text: "Once upon"}, model.Finish{Reason: model.FinishLength}}, say("a time"))
		first := h.final(h.create(`{"model":"played","input":"tell","max_output_tokens":16}`).ID)
		h.final(h.create(`{"model":"played","input":"go on","previous_response_id":"` + string(first.ID) + `"}`).ID)
		asked := h.model.requests[len(h.model.requests)-1]
		var told []string
		for _, it := range asked.Items {
			var m berth.Message
			if err := it.Decode(&m); err != nil {
				t.Fatal(err)
			}
			told = append(told, m.Role+" "+m.Content[0].Text)
		}
		if want := []string{"user tell", "assistant Once upon", "user go on"}; !slices.Equal(told, want) {
			t.Errorf("the model was shown %q, want %q", told, want)
		}
	})
}

// A configuration update applies to its response and those that continue it. The model
// does not see it.
func TestConfigurationUpdate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"), say("two"), say("three"))
		update := `{"type":"configuration_update","id":"cu_1","reasoning":{"effort":"low"},"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}}`
		first := h.final(
			h.create(`{"model":"played","reasoning":{"effort":"high"},"input":[{"role":"user","content":"x"},` +
				update + `]}`).ID)
		second := h.final(
			h.create(`{"model":"played","reasoning":{"effort":"high"},"input":"y","previous_response_id":"` +
				string(first.ID) + `"}`).ID)
		back := `{"type":"configuration_update","id":"cu_2","reasoning":{"effort":"medium"},"text":{"format":{"type":"text"}}}`
		third := h.final(h.create(`{"model":"played","input":[` + back +
			`,{"role":"user","content":"z"}],"previous_response_id":"` + string(second.ID) + `"}`).ID)
		for i, want := range []struct{ effort, format string }{{"low", "json_schema"}, {"low", "json_schema"},
			{"medium", "text"}} {
			r := []*berth.Response{first, second, third}[i]
			asked := h.model.requests[i]
			if r.Reasoning.Effort == nil || *r.Reasoning.Effort != want.effort ||
				!strings.Contains(string(r.Text.Format), want.format) {
				t.Errorf("response %d shows %v and %s, want %v", i, r.Reasoning.Effort, r.Text.Format, want)
			}
			if asked.Reasoning.Effort == nil || *asked.Reasoning.Effort != want.effort ||
				!strings.Contains(string(asked.Text.Format), want.format) {
				t.Errorf("turn %d was called with %v and %s, want %v", i, asked.Reasoning.Effort, asked.Text.Format,
					want)
			}
			for _, it := range asked.Items {
				if it.Type() == berth.ItemConfigurationUpdate {
					t.Errorf("turn %d was shown %s", i, it.Raw())
				}
			}
		}
	})
}

func TestUpstreamErrors(t *testing.T) {
	t.Parallel()
	limited := &berth.Error{Code: berth.CodeRateLimited, Message: "slow down"}
	cut := &berth.Error{Code: berth.CodeUpstream, Message: "cut"}
	runInBubble(t, "retried", func(t *testing.T) {
		h := newHouse(t, turn{limited}, turn{model.Text{Text: "half"}, cut}, say("whole"))
		r := h.final(h.create(`{"model":"played","input":"x"}`).ID)
		if diff := cmp.Diff([]string{"message incomplete half", "message completed whole"},
			outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if last := h.model.requests[2].Items; len(last) != 1 {
			t.Errorf("the half message was shown to the model: %v", last)
		}
	})
	runInBubble(t, "finished calls are facts", func(t *testing.T) {
		h := newHouse(t, append(append(shell("call_1", `{"commands":["a"]}`), model.Call{Index: 1, ID: "call_2",
			Name: "shell", Arguments: `{"c`}), cut), say("ok"))
		r := h.final(h.create(`{` + withShell + `,"input":"x"}`).ID)
		if r.Status != berth.StatusCompleted || !slices.Equal(h.containers.ran, []string{"a"}) {
			t.Errorf("got %s, ran %q", r.Status, h.containers.ran)
		}
	})
	runInBubble(t, "told", func(t *testing.T) {
		h := newHouse(t, turn{berth.Invalid("", "too long")})
		r := h.create(`{"model":"played","input":"x"}`)
		events := types(h.events(r.ID))
		if diff := cmp.Diff([]string{"error", "response.failed"}, events[len(events)-2:]); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if got := h.final(r.ID); got.Error == nil || got.Error.Message != "too long" {
			t.Errorf("error: got %v", got.Error)
		}
	})
	runInBubble(t, "faults of the house stay inside", func(t *testing.T) {
		h := newHouse(t, turn{errors.New("secret path /etc")})
		if got := h.final(h.create(`{"model":"played","input":"x"}`).ID); got.Error == nil ||
			strings.Contains(got.Error.Message, "secret") {
			t.Errorf("error: got %v", got.Error)
		}
	})
}

func TestCancel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["sleep"]}`))
		started := make(chan struct{})
		h.containers.commands["sleep"] = func(c *fakeCall) { c.print("zzz"); close(started); <-c.killed }
		r := h.create(`{` + withShell + `,"input":"x","background":true}`)
		<-started
		got, err := h.engine.Cancel(t.Context(), caller, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != berth.StatusCancelled {
			t.Errorf("status: got %s", got.Status)
		}
		if _, err := h.engine.Cancel(t.Context(), berth.Caller{Project: "proj_other"},
			r.ID); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("another project's cancel: got %v", err)
		}
		lines := outline(t, h.final(r.ID).Output)
		if len(lines) != 2 || !strings.HasPrefix(lines[1], "shell_call_output incomplete [zzz") {
			t.Errorf("output: got %q", lines)
		}
		// The chain can go on from there.
		h.model.turns = []turn{say("again")}
		next := h.final(h.create(`{` + withShell + `,"input":"y","previous_response_id":"` + string(r.ID) + `"}`).ID)
		if next.Status != berth.StatusCompleted {
			t.Errorf("the response after a cancelled one: %s", next.Status)
		}
	})
}

func TestClientLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, background := range []bool{false, true} {
			h := newHouse(t, say("ok"))
			h.model.gate = make(chan struct{}, 1)
			ctx, leave := context.WithCancel(t.Context())
			body := `{"model":"played","input":"x"}`
			if background {
				body = `{"model":"played","input":"x","background":true}`
			}
			r, err := h.tryCreate(ctx, body)
			if err != nil {
				t.Fatal(err)
			}
			leave()
			want := berth.StatusCancelled
			if background {
				h.model.gate <- struct{}{}
				want = berth.StatusCompleted
			}
			if got := h.final(r.ID); got.Status != want {
				t.Errorf("background %v: got %s, want %s", background, got.Status, want)
			}
		}
	})
}

func TestNotStored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("secret"))
		ctx, leave := context.WithCancel(t.Context())
		r, err := h.tryCreate(ctx, `{"model":"played","input":"x","store":false}`)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(h.events(r.ID)); n == 0 {
			t.Fatal("its own client sees no events")
		}
		if _, err := h.engine.Cancel(t.Context(), caller, r.ID); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("it can be found: %v", err)
		}
		if _, err := h.tryCreate(ctx, `{"model":"played","input":"x","previous_response_id":"`+string(
			r.ID)+`"}`); !strings.Contains(err.Error(), "not found") {
			t.Errorf("it can be continued: %v", err)
		}
		leave()
		wantGone(t, h.store, r.ID)
	})
}

// A background response that is not stored can be read, cancelled and deleted while its server runs; the next start
// deletes it.
func TestBackgroundUnstored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"), say("two"))
		const body = `{"model":"played","input":"x","store":false,"background":true}`
		for _, end := range []string{"deleted", "swept"} {
			ctx, leave := context.WithCancel(t.Context())
			r, err := h.tryCreate(ctx, body)
			if err != nil {
				t.Fatal(err)
			}
			leave()
			if got := h.final(r.ID); got.Status != berth.StatusCompleted || got.Store {
				t.Errorf("got %+v", got)
			}
			h.engine.Settled(r.ID)
			if err := h.engine.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, err := h.engine.Cancel(t.Context(), caller, r.ID); err != nil || got.Status != berth.StatusCompleted {
				t.Errorf("it cannot be found: %v", err)
			}
			if end == "deleted" {
				if err := h.engine.Delete(t.Context(), caller, r.ID); err != nil {
					t.Error(err)
				}
			} else {
				h.stop()
				h.start()
				if err := h.engine.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			wantGone(t, h.store, r.ID)
		}
	})
}

func TestRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		for _, tc := range []struct{ body, want string }{
			{`{"model":"other","input":"x"}`, "no such model"},
			{`{"model":"played","input":"x","previous_response_id":"resp_x"}`,
				"Previous response with id 'resp_x' not found."},
			{`{"model":"played","input":[{"type":"item_reference","id":"msg_x"}]}`, "Item with id 'msg_x' not found."},
			{`{"model":"played","input":[{"type":"message","role":"user","content":[{"type":"input_file","file_id":"file-x"}]}]}`,
				"No such File object"},
			{`{"model":"played","input":"x","tools":[{"type":"telepathy"}]}`, "not supported"},
		} {
			if _, err := h.tryCreate(t.Context(), tc.body); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.body, err, tc.want)
			}
		}
	})
}

// A server dies while a command runs. After a restart the command, which ran once, emits
// only the output that was not stored yet, and continues.
func TestResume(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Text{Text: "I will count."},
			model.Call{ID: "call_1", Name: "shell", Arguments: `{"commands":["count"]}`}}, say("counted"))
		printed, goOn := make(chan struct{}), make(chan struct{})
		h.containers.commands["count"] = func(c *fakeCall) {
			c.print("one ")
			close(printed)
			<-goOn
			c.print("two")
			c.exit(0)
		}
		r := h.create(`{` + withShell + `,"input":"x"}`)
		<-printed
		h.waitFor(r.ID, berth.EventShellOutputDelta)
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		got := h.final(r.ID)
		want := []string{"message completed I will count.", "shell_call completed count",
			"shell_call_output completed [one two exit 0]", "message completed counted"}
		if diff := cmp.Diff(want, outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"count"}, h.containers.ran); diff != "" {
			t.Errorf("commands run (-want +got):\n%s", diff)
		}
		var told string
		for _, ev := range h.events(r.ID) {
			var d berth.ShellDelta
			if ev.Type == berth.EventShellOutputDelta && json.Unmarshal(ev.Delta, &d) == nil {
				told += d.Stdout
			}
		}
		if told != "one two" {
			t.Errorf("the deltas have %q, want each character once", told)
		}
		if got.Usage.TotalTokens != 30 {
			t.Errorf("usage of both lives: got %d tokens, want 30", got.Usage.TotalTokens)
		}
	})
}

// A server dies while the model writes. The open message is closed as incomplete, and the
// turn is requested again.
func TestResumeMidSentence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Text{Text: "I was about"}, hang{}}, say("Here I am."))
		r := h.create(`{"model":"played","input":"x"}`)
		h.waitFor(r.ID, berth.EventOutputTextDelta)
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := h.final(r.ID)
		if diff := cmp.Diff([]string{"message incomplete I was about", "message completed Here I am."},
			outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

// The model no longer sees a deleted response in the middle of a chain.
func TestDeletedAncestor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"), say("two"), say("three"), say("four"))
		one := h.final(h.create(`{"model":"played","input":"first secret"}`).ID)
		two := h.final(h.create(`{"model":"played","input":"second","previous_response_id":"` + string(one.ID) +
			`"}`).ID)
		if err := h.engine.Delete(t.Context(), caller, one.ID); err != nil {
			t.Fatal(err)
		}
		h.final(h.create(`{"model":"played","input":"third","previous_response_id":"` + string(two.ID) + `"}`).ID)
		if got := asJSON(t, h.model.requests[2].Items); strings.Contains(got, "secret") || !strings.Contains(got,
			"second") {
			t.Errorf("the model saw %s", got)
		}
		if _, err := h.tryCreate(t.Context(), `{"model":"played","input":"x","previous_response_id":"`+string(
			one.ID)+`"}`); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("a deleted response was continued: %v", err)
		}
	})
}

// Two requests with the same chosen id create one response.
func TestCreateAs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("Ahoy."))
		r, err := h.tryCreate(t.Context(), `{"model":"played","input":"x","background":true}`, engine.As("resp_noted"))
		if err != nil || r.ID != "resp_noted" {
			t.Fatalf("got %v, %v, want resp_noted", r, err)
		}
		if _, err := h.tryCreate(t.Context(), `{"model":"played","input":"y","background":true}`,
			engine.As("resp_noted")); !errors.Is(err, store.ErrExists) {
			t.Errorf("an id again: got %v, want %v", err, store.ErrExists)
		}
		if got := h.final("resp_noted"); got.Status != berth.StatusCompleted || len(got.Output) != 1 {
			t.Errorf("got %v %v, want one answer", got.Status, got.Output)
		}
	})
}

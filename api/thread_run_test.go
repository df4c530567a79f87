package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/internal/sse"
)

const forecast = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`

// assistant creates an assistant with the scripted model and more fields.
func (h *house) assistant(more ...string) string {
	h.t.Helper()
	return h.call(200, "POST", "/v1/assistants", `{"model":"scripted"`+strings.Join(append([]string{""}, more...),
		",")+`}`).id()
}

// thread creates a thread with a user's message and returns its path.
func (h *house) thread(text string) string {
	h.t.Helper()
	content, _ := json.Marshal(text)
	return "/v1/threads/" + h.call(200, "POST", "/v1/threads",
		`{"messages":[{"role":"user","content":`+string(content)+`}]}`).id()
}

// polled retrieves a run until it has ended or waits for outputs.
func (h *house) polled(path string) object {
	h.t.Helper()
	ctx, cancel := time.Now().Add(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer cancel.Stop()
	for time.Now().Before(ctx) {
		run := h.call(200, "GET", path, nil)
		if s := run.at("status"); s != "queued" && s != "in_progress" && s != "cancelling" {
			return run
		}
		<-cancel.C
	}
	h.t.Fatalf("timeout: %s is still active", path)
	return nil
}

// names returns the names of a stream's events, one of each row of equal ones.
func names(events []sse.Event) []string {
	var out []string
	for _, ev := range events {
		if n := len(out); n == 0 || out[n-1] != ev.Type {
			out = append(out, ev.Type)
		}
	}
	return out
}

// texts returns the texts of a list of messages, in order.
func texts(list object) []string {
	var out []string
	for i := range list["data"].([]any) {
		text, _ := list.at("data", i, "content", 0, "text", "value").(string)
		out = append(out, fmt.Sprint(list.at("data", i, "role"), ": ", text))
	}
	return out
}

func TestRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread := h.thread("Ahoy there, harbour.")
	a := h.assistant(`"instructions":"Be brief."`)
	run := h.call(200, "POST", thread+"/runs",
		`{"assistant_id":"`+a+`","additional_instructions":"Be kind.","metadata":{"ship":"Vasa"}}`)
	if run.at("status") != "queued" || run.at("instructions") != "Be brief.\nBe kind." || run.at("usage") != nil {
		t.Errorf("got %v, want it queued", run)
	}
	run = h.polled(thread + "/runs/" + run.id())
	if run.at("status") != "completed" || run.at("usage", "total_tokens").(float64) == 0 ||
		run.at("completed_at") == nil || run.at("metadata", "ship") != "Vasa" {
		t.Errorf("got %v, want it completed", run)
	}
	messages := h.call(200, "GET", thread+"/messages", nil)
	if diff := cmp.Diff([]string{"assistant: Ahoy there, harbour.", "user: Ahoy there, harbour."},
		texts(messages)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	said := messages.at("data", 0).(map[string]any)
	if said["run_id"] != run.id() || said["assistant_id"] != a || said["status"] != "completed" {
		t.Errorf("got %v, want it the run's", said)
	}
	steps := h.call(200, "GET", thread+"/runs/"+run.id()+"/steps", nil)
	if steps.at("data", 0, "step_details", "message_creation", "message_id") != said["id"] ||
		steps.at("data", 0, "status") != "completed" || len(steps["data"].([]any)) != 1 {
		t.Errorf("steps: got %v, want one that made %v", steps, said["id"])
	}
	if diff := cmp.Diff(run.at("usage"), steps.at("data", 0, "usage")); diff != "" {
		t.Errorf("usage (-run +step):\n%s", diff)
	}
	if got := h.call(200, "GET", thread+"/runs/"+run.id()+"/steps/"+steps.at("data", 0, "id").(string),
		nil); !cmp.Equal(any(map[string]any(got)), steps.at("data", 0)) {
		t.Errorf("got step %v, want the one listed", got)
	}
}

func TestRunStream(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	events := h.rest(h.stream(t.Context(), "POST", "/v1/threads/runs",
		`{"stream":true,"assistant_id":"`+h.assistant()+`","thread":{"messages":[{"role":"user","content":"Ahoy there, harbour."}]}}`))
	want := []string{"thread.created", "thread.run.created", "thread.run.queued", "thread.run.in_progress",
		"thread.run.step.created", "thread.run.step.in_progress", "thread.message.created",
		"thread.message.in_progress",
		"thread.message.delta", "thread.message.completed", "thread.run.step.completed", "thread.run.completed", "done"}
	if diff := cmp.Diff(want, names(events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var text strings.Builder
	last := map[string]object{}
	for _, ev := range events[:len(events)-1] {
		var o object
		check(t, json.Unmarshal(ev.Data, &o))
		last[ev.Type] = o
		if ev.Type == "thread.message.delta" {
			text.WriteString(o.at("delta", "content", 0, "text", "value").(string))
		}
	}
	if text.String() != "Ahoy there, harbour." || string(events[len(events)-1].Data) != "[DONE]" {
		t.Errorf("got %q and %s at the end, want the echo and [DONE]", text.String(), events[len(events)-1].Data)
	}
	thread := "/v1/threads/" + last["thread.created"].id()
	if diff := cmp.Diff(last["thread.run.completed"],
		h.call(200, "GET", thread+"/runs/"+last["thread.run.completed"].id(), nil)); diff != "" {
		t.Errorf("the run (-sent +stored):\n%s", diff)
	}
	if diff := cmp.Diff(last["thread.message.completed"],
		h.call(200, "GET", thread+"/messages/"+last["thread.message.completed"].id(), nil)); diff != "" {
		t.Errorf("the message (-sent +stored):\n%s", diff)
	}
}

const asks = "```json weather\n{\"city\":\"Kiel\"}\n```\n```json weather\n{\"city\":\"Oslo\"}\n```"

func TestToolOutputs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread := h.thread(asks)
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+h.assistant(forecast)+`"}`)
	path := thread + "/runs/" + run.id()
	for _, city := range []string{"Kiel", "Oslo"} {
		run = h.polled(path)
		call := run.at("required_action", "submit_tool_outputs", "tool_calls", 0)
		if run.at("status") != "requires_action" || run.at("expires_at") == nil || !strings.Contains(fmt.Sprint(call),
			city) {
			t.Fatalf("got %v, want a call for the weather of %s", run, city)
		}
		id := call.(map[string]any)["id"].(string)
		h.refused(400, "POST", path+"/submit_tool_outputs", `{"tool_outputs":[]}`,
			"Expected tool outputs for call_ids ['"+id+"'], got []")
		h.refused(400, "POST", thread+"/messages", `{"role":"user","content":"x"}`,
			"Can't add messages to "+thread[len("/v1/threads/"):]+" while a run "+run.id()+" is active.")
		h.refused(400, "POST", thread+"/runs", `{"assistant_id":"`+run.at("assistant_id").(string)+`"}`,
			"Thread "+thread[len("/v1/threads/"):]+" already has an active run "+run.id()+".")
		outputs := `{"tool_outputs":[{"tool_call_id":"` + id + `","output":"rain in ` + city + `"}]`
		if city == "Kiel" {
			if got := h.call(200, "POST", path+"/submit_tool_outputs", outputs+`}`); got.at("status") != "queued" ||
				got.at("required_action") != nil {
				t.Errorf("got %v, want it queued", got)
			}
			continue
		}
		events := h.rest(h.stream(t.Context(), "POST", path+"/submit_tool_outputs", outputs+`,"stream":true}`))
		want := []string{"thread.run.step.completed", "thread.run.queued", "thread.run.in_progress",
			"thread.run.step.created", "thread.run.step.in_progress", "thread.message.created",
			"thread.message.in_progress",
			"thread.message.delta", "thread.message.completed", "thread.run.step.completed", "thread.run.completed",
			"done"}
		if diff := cmp.Diff(want, names(events)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		var step object
		check(t, json.Unmarshal(events[0].Data, &step))
		if got := step.at("step_details", "tool_calls", 0, "function", "output"); got != "rain in Oslo" {
			t.Errorf("the step sent first has output %v", got)
		}
	}
	if got := texts(h.call(200, "GET", thread+"/messages?limit=1", nil)); !cmp.Equal(got,
		[]string{"assistant: 1. weather: rain in Kiel\n2. weather: rain in Oslo"}) {
		t.Errorf("got %q", got)
	}
	steps := h.call(200, "GET", path+"/steps?order=asc", nil)
	for i, want := range []string{"rain in Kiel", "rain in Oslo"} {
		if got := steps.at("data", i, "step_details", "tool_calls", 0, "function", "output"); got != want ||
			steps.at("data", i, "status") != "completed" {
			t.Errorf("step %d: got %v, want output %q", i, steps.at("data", i), want)
		}
	}
	h.refused(400, "POST", path+"/submit_tool_outputs", `{"tool_outputs":[]}`,
		`Runs in status "completed" do not accept tool outputs.`)
	h.refused(400, "POST", path+"/cancel", nil, "Cannot cancel run with status 'completed'.")
}

// refused sends a request that must be refused with the given message.
func (h *house) refused(status int, method, path string, body any, message string) {
	h.t.Helper()
	if got := h.call(status, method, path, body).at("error", "message"); got != message {
		h.t.Errorf("%s %s: got %q, want %q", method, path, got, message)
	}
}

func TestRunExpires(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Now()}
	h := newHouse(t, func(o *api.Options) { setThreads(o, clock.Now) })
	thread := h.thread(asks)
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+h.assistant(forecast)+`"}`)
	path := thread + "/runs/" + run.id()
	waiting := h.polled(path)
	clock.add(9 * time.Minute)
	if got := h.call(200, "GET", path, nil); got.at("status") != "requires_action" {
		t.Errorf("after 9 minutes: got %v", got.at("status"))
	}
	clock.add(2 * time.Minute) // the run was created by the real clock, some time after the test began
	run = h.call(200, "GET", path, nil)
	if run.at("status") != "expired" || run.at("required_action") != nil ||
		run.at("expires_at") != waiting.at("expires_at") || run.at("usage") == nil {
		t.Errorf("after 10 minutes: got %v, want it expired", run)
	}
	if step := h.call(200, "GET", path+"/steps", nil); step.at("data", 0, "status") != "expired" ||
		step.at("data", 0, "expired_at") != run.at("expires_at") {
		t.Errorf("got step %v, want it expired", step)
	}
	h.refused(400, "POST", path+"/submit_tool_outputs", `{"tool_outputs":[]}`,
		`Runs in status "expired" do not accept tool outputs.`)
	h.call(200, "POST", thread+"/messages", `{"role":"user","content":"Go on."}`)
	next := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+h.assistant()+`"}`)
	if got := h.polled(thread + "/runs/" + next.id()); got.at("status") != "completed" {
		t.Errorf("the next run: got %v", got)
	}
}

func TestThreadAndRunMetadata(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread := h.thread("hello")
	if got := h.call(200, "POST", thread, `{"metadata":{"a":"1"}}`); got.at("metadata", "a") != "1" {
		t.Errorf("got %v", got)
	}
	if got := h.call(200, "GET", thread, nil); got.at("metadata", "a") != "1" || got["object"] != "thread" {
		t.Errorf("the thread: got %v", got)
	}
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+h.assistant()+`"}`)
	if got := h.call(200, "POST", thread+"/runs/"+run.id(), `{"metadata":{"b":"2"}}`); got.at("metadata", "b") != "2" ||
		got.id() != run.id() {
		t.Errorf("the run: got %v", got)
	}
}

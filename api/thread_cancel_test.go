package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

func TestCancelRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a := h.call(200, "POST", "/v1/assistants", `{"model":"vendor/fed"}`).id()
	thread := h.thread("hi")
	stream := h.stream(t.Context(), "POST", thread+"/runs", `{"assistant_id":"`+a+`","stream":true}`)
	path := thread + "/runs/" + h.until(stream, "thread.run.in_progress").id()
	h.fed.words <- "Half a "
	h.until(stream, "thread.message.delta")
	got := h.call(200, "POST", path+"/cancel", nil)
	if got["status"] != "cancelling" || got["usage"] != nil {
		t.Errorf("cancel: got %v, want it cancelling", got)
	}
	events := h.rest(stream)
	want := []string{"thread.run.cancelling", "thread.message.incomplete", "thread.run.step.cancelled",
		"thread.run.cancelled", "done"}
	if diff := cmp.Diff(want, names(events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var message object
	check(t, json.Unmarshal(events[1].Data, &message))
	if message.at("incomplete_details", "reason") != "run_cancelled" || message.at("content", 0, "text",
		"value") != "Half a " {
		t.Errorf("got message %v, want its text and run_cancelled", message)
	}
	run := h.call(200, "GET", path, nil)
	if run["status"] != "cancelled" || run["cancelled_at"] == nil {
		t.Errorf("got %v, want it cancelled", run)
	}
	h.refused(400, "POST", path+"/cancel", nil, "Cannot cancel run with status 'cancelled'.")
}

func TestCancelWaitingRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread := h.thread(asks)
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+h.assistant(forecast)+`"}`)
	path := thread + "/runs/" + run.id()
	call := h.polled(path).at("required_action", "submit_tool_outputs", "tool_calls", 0, "id").(string)
	if got := h.call(200, "POST", path+"/cancel", nil); got["status"] != "cancelling" {
		t.Errorf("cancel: got %v, want it cancelling", got)
	}
	if got := h.call(200, "GET", path, nil); got["status"] != "cancelled" || got["required_action"] != nil {
		t.Errorf("got %v, want it cancelled", got)
	}
	if got := h.call(200, "GET", path+"/steps", nil); got.at("data", 0, "status") != "cancelled" {
		t.Errorf("got step %v, want it cancelled", got.at("data", 0))
	}
	h.refused(400, "POST", path+"/submit_tool_outputs", `{"tool_outputs":[{"tool_call_id":"`+call+`","output":"x"}]}`,
		`Runs in status "cancelled" do not accept tool outputs.`)
}

// Of concurrent requests, one starts a run on the thread and one submits the outputs.
func TestRunsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread, a := h.thread(asks), h.assistant(forecast)
	atOnce := func(path, body string) (accepted []object) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			wg.Go(func() {
				resp := h.send(t.Context(), "POST", path, body)
				var o object
				if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
					t.Errorf("POST %s: %v", path, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if resp.StatusCode == 200 {
					accepted = append(accepted, o)
				} else if resp.StatusCode != 400 {
					t.Errorf("POST %s: got %d %v", path, resp.StatusCode, o)
				}
			})
		}
		wg.Wait()
		return accepted
	}
	runs := atOnce(thread+"/runs", `{"assistant_id":"`+a+`"}`)
	if len(runs) != 1 {
		t.Fatalf("%d runs were accepted, want 1", len(runs))
	}
	path := thread + "/runs/" + runs[0].id()
	for range 2 {
		call := h.polled(path).at("required_action", "submit_tool_outputs", "tool_calls", 0, "id").(string)
		if got := atOnce(path+"/submit_tool_outputs",
			`{"tool_outputs":[{"tool_call_id":"`+call+`","output":"rain"}]}`); len(got) != 1 {
			t.Fatalf("%d submissions were accepted, want 1", len(got))
		}
	}
	if got := h.polled(path); got["status"] != "completed" {
		t.Errorf("got %v", got)
	}
	if got := h.call(200, "GET", thread+"/runs", nil); len(got["data"].([]any)) != 1 {
		t.Errorf("got runs %v, want one", got)
	}
}

// Deleting a thread deletes the responses of its runs.
func TestDeleteThread(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a := h.call(200, "POST", "/v1/assistants", `{"model":"vendor/fed"}`).id()
	thread := h.thread("hi")
	stream := h.stream(t.Context(), "POST", thread+"/runs", `{"assistant_id":"`+a+`","stream":true}`)
	path := thread + "/runs/" + h.until(stream, "thread.run.in_progress").id()
	objects, _, err := h.store.ListObjects(t.Context(), berth.DefaultProject, "thread.run",
		thread[len("/v1/threads/"):], store.Page{Limit: 10})
	check(t, err)
	var kept struct {
		Legs []struct{ Response berth.ResponseID }
	}
	check(t, json.Unmarshal(objects[0].Body, &kept))
	h.call(200, "GET", "/v1/responses/"+string(kept.Legs[0].Response), nil)
	h.call(200, "DELETE", thread, nil)
	h.call(404, "GET", "/v1/responses/"+string(kept.Legs[0].Response), nil)
	h.call(404, "GET", path, nil)
	events := h.rest(stream)
	// It may have seen the end of the response before that of the thread.
	if got := names(events); !slices.Contains([]string{"error", "done"}, got[len(got)-1]) ||
		slices.Contains(got, "thread.run.completed") {
		t.Errorf("the stream ends with %v", got)
	}
}

// A run whose response was deleted has failed. Its thread can still be used.
func TestResponseOfRunDeleted(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread := h.thread(asks)
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+h.assistant(forecast)+`"}`)
	h.polled(thread + "/runs/" + run.id())
	objects, _, err := h.store.ListObjects(t.Context(), berth.DefaultProject, "thread.run",
		thread[len("/v1/threads/"):], store.Page{Limit: 10})
	check(t, err)
	var kept struct {
		Legs []struct{ Response berth.ResponseID }
	}
	check(t, json.Unmarshal(objects[0].Body, &kept))
	h.call(200, "DELETE", "/v1/responses/"+string(kept.Legs[0].Response), nil)
	if got := h.call(200, "GET", thread+"/runs/"+run.id(), nil); got["status"] != "failed" ||
		!strings.Contains(got.at("last_error", "message").(string), "deleted") {
		t.Errorf("got %v, want it failed", got)
	}
	h.call(200, "GET", thread+"/runs/"+run.id()+"/steps", nil)
	h.call(200, "POST", thread+"/messages", `{"role":"user","content":"x"}`)
}

// The requests of a run to the model.
func TestRunRequest(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(model.Call{ID: "call_1", Name: "weather"}, model.Call{Arguments: "{}"}, stopped),
		turn(model.Text{Text: "Rain."}, stopped), turn(model.Text{Text: "Aye."}, stopped))
	a := h.call(200, "POST", "/v1/assistants",
		`{"model":"missing","instructions":"Steer.","temperature":0.2,"reasoning_effort":"low",`+forecast+`}`).id()
	thread := h.thread("one")
	h.call(200, "POST", thread+"/messages", `{"role":"assistant","content":"two"}`)
	gone := h.call(200, "POST", thread+"/messages", `{"role":"user","content":"gone"}`).id()
	h.call(200, "DELETE", thread+"/messages/"+gone, nil)
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+a+`","model":"played","additional_instructions":"Ho.","top_p":0.5,"parallel_tool_calls":false,
		"max_completion_tokens":1000,"tool_choice":{"type":"function","function":{"name":"weather"}},"additional_messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}],
		"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}}`)
	path := thread + "/runs/" + run.id()
	h.polled(path)
	h.call(200, "POST", path+"/submit_tool_outputs", `{"tool_outputs":[{"tool_call_id":"call_1","output":"rain"}]}`)
	if got := h.polled(path); got["status"] != "completed" || got.at("usage", "completion_tokens") != 4.0 {
		t.Errorf("got %v", got)
	}
	first, second := m.asked[0], m.asked[1]
	if got := outlineItems(first.Items); got != "user one|assistant two|user https://x/y.png" {
		t.Errorf("the first leg reads %q", got)
	}
	if got := outlineItems(
		second.Items); got != "user one|assistant two|user https://x/y.png|function_call|function_call_output" {
		t.Errorf("the second leg reads %q", got)
	}
	if first.Instructions != "Steer.\nHo." || *first.Temperature != 0.2 || *first.TopP != 0.5 ||
		first.ParallelToolCalls || first.MaxOutputTokens != 1000 || *first.Reasoning.Effort != "low" {
		t.Errorf("got %+v", first)
	}
	if diff := cmp.Diff(model.ToolChoice{Mode: "function", Name: "weather"}, first.ToolChoice); diff != "" {
		t.Errorf("choice of the first leg (-want +got):\n%s", diff)
	}
	if second.ToolChoice.Mode != "auto" || second.MaxOutputTokens != 998 {
		t.Errorf("second leg: choice %v of at most %d tokens, want auto and what is left", second.ToolChoice,
			second.MaxOutputTokens)
	}
	if strict := first.Tools[0].Strict; strict == nil || *strict {
		t.Error("a function without strict is strict")
	}
	var format struct {
		Type, Name string
		Schema     any
		Strict     bool
	}
	check(t, json.Unmarshal(first.Text.Format, &format))
	if format.Type != "json_schema" || format.Name != "n" || format.Schema == nil || !format.Strict {
		t.Errorf("got format %s", first.Text.Format)
	}

	next := h.call(200, "POST", thread+"/runs",
		`{"assistant_id":"`+a+`","model":"played","truncation_strategy":{"type":"last_messages","last_messages":2}}`)
	h.polled(thread + "/runs/" + next.id())
	if got := outlineItems(m.asked[2].Items); got != "user https://x/y.png|assistant Rain." {
		t.Errorf("with last_messages 2 the run reads %q", got)
	}
}

// outlineItems lists items as "role text".
func outlineItems(items []berth.Item) string {
	var out []string
	for _, it := range items {
		var m berth.Message
		if it.Type() != berth.ItemMessage || it.Decode(&m) != nil {
			out = append(out, string(it.Type()))
			continue
		}
		out = append(out, m.Role+" "+m.Content[0].Text+m.Content[0].ImageURL)
	}
	return strings.Join(out, "|")
}

func TestRunBudgets(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a := h.assistant(forecast)
	long := strings.Repeat("word ", 400)

	// The oldest messages are dropped.
	thread := h.thread(long)
	h.call(200, "POST", thread+"/messages", `{"role":"user","content":"Short."}`)
	run := h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+a+`","max_prompt_tokens":300}`)
	if got := h.polled(thread + "/runs/" + run.id()); got["status"] != "completed" ||
		got.at("usage", "prompt_tokens") != 1.0 {
		t.Errorf("got %v, want the short message read alone", got)
	}
	// A single message that does not fit is not sent to the model.
	thread = h.thread(long)
	events := h.rest(h.stream(t.Context(), "POST", thread+"/runs",
		`{"assistant_id":"`+a+`","max_prompt_tokens":300,"stream":true}`))
	if got := outlineRun(t, events); got != begun+"incomplete max_prompt_tokens\n" {
		t.Errorf("got events %s", got)
	}
	h.sameAsKept(thread, events, "incomplete")
	// A run without tokens left does not call the model again.
	thread = h.thread(strings.Repeat("```json weather\n{\"city\":\""+strings.Repeat("Kiel ", 200)+"\"}\n```\n", 2))
	run = h.call(200, "POST", thread+"/runs", `{"assistant_id":"`+a+`","max_completion_tokens":256}`)
	path := thread + "/runs/" + run.id()
	call := h.polled(path).at("required_action", "submit_tool_outputs", "tool_calls", 0, "id").(string)
	h.call(200, "POST", path+"/submit_tool_outputs", `{"tool_outputs":[{"tool_call_id":"`+call+`","output":"x"}]}`)
	got := h.polled(path)
	if got["status"] != "incomplete" || got.at("incomplete_details", "reason") != "max_completion_tokens" {
		t.Errorf("got %v, want it incomplete", got)
	}
	if steps := h.call(200, "GET", path+"/steps", nil); steps.at("data", 0, "status") != "cancelled" ||
		steps.at("data", 1, "status") != "completed" {
		t.Errorf("got steps %v, want the last one cancelled", steps)
	}
}

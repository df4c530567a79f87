package api_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/model"
)

// A vector store that is made for a request does not outlive its refusal.
func TestRefusedVectorStores(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	file := h.fileOf("tides.md", "High water is at noon.")
	a := h.call(200, "POST", "/v1/assistants", `{"model":"scripted","tools":[{"type":"file_search"}]}`)
	thread := h.call(200, "POST", "/v1/threads", `{}`)
	h.call(200, "POST", "/v1/vector_stores", `{"name":"the client's own"}`)
	store := fmt.Sprintf(`"tool_resources":{"file_search":{"vector_stores":[{"file_ids":[%q]}]}}`, file)
	attachment := fmt.Sprintf(
		`{"role":"user","content":"x","attachments":[{"file_id":%q,"tools":[{"type":"file_search"}]}]}`, file)
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() { // runs wait until their files are read
		for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if err := h.opts.VectorStores.ReadAll(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	defer reading.Wait()
	defer stop()
	for _, refused := range []struct{ path, body string }{
		{"/v1/threads/runs", `{"assistant_id":"` + a.id() + `","model":"nowhere","thread":{` + store + `}}`},
		{"/v1/threads/runs", `{"assistant_id":"` + a.id() + `","model":"nowhere","thread":{"messages":[` + attachment +
			`]}}`},
		{"/v1/threads/" + thread.id() + "/runs", `{"assistant_id":"` + a.id() +
			`","model":"nowhere","additional_messages":[` + attachment + `]}`},
	} {
		res := h.send(t.Context(), "POST", refused.path, refused.body)
		list := h.call(200, "GET", "/v1/vector_stores", nil)["data"].([]any)
		if res.StatusCode/100 != 4 || len(list) != 1 {
			t.Errorf("%s %.300s: got %d, and there are %d vector stores, want 1", refused.path, refused.body,
				res.StatusCode, len(list))
		}
	}
	if got := h.call(200, "GET", "/v1/threads/"+thread.id(), nil); strings.Contains(fmt.Sprint(got), "vs_") {
		t.Errorf("the thread names a vector store that was deleted: %v", got)
	}
	h.call(200, "POST", "/v1/threads/"+thread.id()+"/runs",
		`{"assistant_id":"`+a.id()+`","additional_messages":[`+attachment+`]}`)
}

// A run searches the vector stores of its assistant and its thread, and the files attached
// to messages, and cites what it found.
func TestRunSearchesFiles(t *testing.T) {
	t.Parallel()
	m := &playedModel{}
	h := newHouse(t, nil, model.Rule{Match: "played", Provider: m})
	tides, knots := h.fileOf("tides.md", "High water is at noon."),
		h.fileOf("knots.md", "High water does not harm a bowline.")
	a := h.call(200, "POST", "/v1/assistants", fmt.Sprintf(`{"model":"played","tools":[{"type":"file_search","file_search":{"max_num_results":5}}],
		"tool_resources":{"file_search":{"vector_stores":[{"file_ids":[%q],"metadata":{"of":"port"}}]}}}`, tides))
	store, _ := a.at("tool_resources", "file_search", "vector_store_ids", 0).(string)
	if v := h.call(200, "GET", "/v1/vector_stores/"+store, nil); v.at("metadata", "of") != "port" ||
		v.at("file_counts", "total") != 1.0 {
		t.Errorf("the vector store of the assistant: got %v", v)
	}
	thread := h.call(200, "POST", "/v1/threads",
		fmt.Sprintf(
			`{"messages":[{"role":"user","content":"When?","attachments":[{"file_id":%q,"tools":[{"type":"file_search"},{"type":"code_interpreter"}]}]}]}`,
			knots))
	attached, _ := thread.at("tool_resources", "file_search", "vector_store_ids", 0).(string)
	if v := h.call(200, "GET", "/v1/vector_stores/"+attached, nil); v.at("expires_after", "days") != 7.0 ||
		thread.at("tool_resources", "code_interpreter", "file_ids", 0) != knots {
		t.Errorf("the resources of the thread: got %v, store %v", thread, v)
	}
	h.call(200, "POST", "/v1/threads/"+thread.id()+"/messages",
		fmt.Sprintf(`{"role":"user","content":"And?","attachments":[{"file_id":%q,"tools":[{"type":"file_search"}]}]}`,
			tides))
	if v := h.call(200, "GET", "/v1/vector_stores/"+attached, nil); v.at("file_counts", "total") != 2.0 {
		t.Errorf("a further attachment: got %v", v)
	}
	h.readAll()
	m.turns = [][]any{turn(model.Call{ID: "call_1", Name: "file_search", Arguments: `{"queries":["high water"]}`},
		stopped), turn(model.Text{Text: "Let me see."}, stopped)}
	runs := "/v1/threads/" + thread.id() + "/runs"
	run := h.polled(runs + "/" + h.call(200, "POST", runs, `{"assistant_id":"`+a.id()+`"}`).id())
	steps := h.call(200, "GET", runs+"/"+run.id()+"/steps?order=asc", nil)
	call := object(steps.at("data", 0, "step_details", "tool_calls", 0).(map[string]any))
	if run.at("status") != "completed" || call.at("type") != "file_search" || call.at("file_search", "results", 1,
		"file_name") == nil || call.at("file_search", "results", 0, "content") != nil {
		t.Fatalf("run %v, call %v", run, call)
	}
	full := h.call(200, "GET",
		runs+"/"+run.id()+"/steps?order=asc&include[]=step_details.tool_calls[*].file_search.results[*].content", nil)
	if text, _ := full.at("data", 0, "step_details", "tool_calls", 0, "file_search", "results", 0, "content", 0,
		"text").(string); !strings.Contains(text, "High water") {
		t.Errorf("with include: got %v", full)
	}
	// A run reads the thread's messages, not its calls, so it searches again before it cites.
	shown := functionOutput(t, m.asked[1].Items)
	if !strings.Contains(shown, "†tides.md】") || !strings.Contains(shown, "†knots.md】") {
		t.Fatalf("the model is shown %q", shown)
	}
	cite := func(req *model.Request) model.Delta {
		shown := functionOutput(t, req.Items)
		return model.Text{Text: "At noon" + shown[strings.Index(shown, "【"):strings.Index(shown, "】")+len("】")]}
	}
	m.turns = append(m.turns, turn(model.Call{ID: "call_2", Name: "file_search",
		Arguments: `{"queries":["high water"]}`}, stopped), turn(cite, model.Text{Text: "."}, stopped))
	events := h.rest(h.stream(t.Context(), "POST", runs, `{"assistant_id":"`+a.id()+`","stream":true}`))
	if got := strings.Join(names(events), " "); !strings.Contains(got,
		"thread.run.step.delta thread.run.step.completed thread.run.step.created") {
		t.Errorf("events: got %s", got)
	}
	message := h.call(200, "GET", "/v1/threads/"+thread.id()+"/messages?limit=1", nil)
	text := message.at("data", 0, "content", 0, "text", "value").(string)
	cited, _ := message.at("data", 0, "content", 0, "text", "annotations", 0, "text").(string)
	if cited == "" || text != "At noon"+cited+"." || message.at("data", 0, "content", 0, "text", "annotations", 0,
		"type") != "file_citation" {
		t.Errorf("message: got %v", message)
	}
}

// A thread has at most 20 files for the code interpreter.
func TestRunFilesLimits(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread := "/v1/threads/" + h.call(200, "POST", "/v1/threads", nil).id()
	var all []string
	for i := range 21 {
		id := h.fileOf(fmt.Sprintf("%d.txt", i), "x")
		all = append(all, fmt.Sprintf(`{"file_id":%q,"tools":[{"type":"code_interpreter"}]}`, id))
	}
	h.call(200, "POST", thread+"/messages", `{"role":"user","content":"x","attachments":[`+strings.Join(all[:20],
		",")+`]}`)
	e := h.call(400, "POST", thread+"/messages", `{"role":"user","content":"x","attachments":[`+all[20]+`]}`)
	if e.at("error", "param") != "attachments" {
		t.Errorf("got %v", e)
	}
}

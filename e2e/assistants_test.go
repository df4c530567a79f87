//lint:file-ignore SA1019 Assistants are deprecated by OpenAI, and served here all the same.

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

// A slowUpstream is a Chat Completions server that says the first half of its first
// answer, and then whole answers.
type slowUpstream struct {
	mu    sync.Mutex
	asked int
}

func (u *slowUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.asked++
	first := u.asked == 1
	u.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(delta, finish string) {
		fmt.Fprintf(w,
			"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"slow\",\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]}\n\n",
			delta, finish)
		w.(http.Flusher).Flush()
	}
	say(`"role":"assistant","content":"Half "`, "null")
	if first {
		<-r.Context().Done()
		return
	}
	say(`"content":"and half."`, "null")
	say("", `"stop"`)
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// messagesOf returns the messages of a thread, the oldest first.
func messagesOf(t *testing.T, c *openai.Client, thread string) []string {
	t.Helper()
	var out []string
	page := c.Beta.Threads.Messages.ListAutoPaging(t.Context(), thread,
		openai.BetaThreadMessageListParams{Order: openai.BetaThreadMessageListParamsOrderAsc, Limit: openai.Int(1)})
	for page.Next() {
		m := page.Current()
		out = append(out, fmt.Sprintf("%s %s: %s", m.Role, m.Status, m.Content[0].Text.Value))
	}
	if err := page.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGoAssistants asks an assistant that needs a function, with the official Go
// client; the server is killed while the run waits for it.
func TestGoAssistants(t *testing.T) {
	s := newServer(t)
	c, ctx := s.client(), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := c.Beta.Assistants.New(ctx, openai.BetaAssistantNewParams{Model: "scripted",
		Tools: []openai.AssistantToolUnionParam{
			{OfFunction: &openai.FunctionToolParam{Function: shared.FunctionDefinitionParam{Name: "add"}}}}})
	must(err)
	thread, err := c.Beta.Threads.New(ctx, openai.BetaThreadNewParams{Messages: []openai.BetaThreadNewParamsMessage{
		{Role: "user",
			Content: openai.BetaThreadNewParamsMessageContentUnion{OfString: openai.String(
				"```json add\n[1,2]\n```")}}}})
	must(err)
	stream := c.Beta.Threads.Runs.NewStreaming(ctx, thread.ID, openai.BetaThreadRunNewParams{AssistantID: a.ID})
	var run openai.Run
	for stream.Next() {
		if ev := stream.Current(); ev.Event == "thread.run.requires_action" {
			run = ev.AsThreadRunRequiresAction().Data
		}
	}
	must(stream.Err())
	if run.Status != openai.RunStatusRequiresAction {
		t.Fatalf("got run %s, want it to wait", run.RawJSON())
	}
	s.kill()
	s.start()
	c = s.client()
	kept, err := c.Beta.Threads.Runs.Get(ctx, thread.ID, run.ID)
	must(err)
	if diff := cmp.Diff(run.RawJSON(), kept.RawJSON()); diff != "" {
		t.Errorf("after a crash (-sent +stored):\n%s", diff)
	}
	_, err = c.Beta.Threads.Messages.New(ctx, thread.ID, openai.BetaThreadMessageNewParams{Role: "user",
		Content: openai.BetaThreadMessageNewParamsContentUnion{OfString: openai.String("x")}})
	wantStatus(t, "a message to a run that waits", err, http.StatusBadRequest)
	call := kept.RequiredAction.SubmitToolOutputs.ToolCalls[0]
	_, err = c.Beta.Threads.Runs.SubmitToolOutputs(ctx, thread.ID, run.ID, openai.BetaThreadRunSubmitToolOutputsParams{
		ToolOutputs: []openai.BetaThreadRunSubmitToolOutputsParamsToolOutput{{ToolCallID: openai.String(call.ID),
			Output: openai.String("3")}}})
	must(err)
	s.waitUntil("the run is complete", func() bool {
		kept, err = c.Beta.Threads.Runs.Get(ctx, thread.ID, run.ID)
		return err == nil && kept.Status == openai.RunStatusCompleted
	})
	want := []string{"user completed: ```json add\n[1,2]\n```", "assistant completed: 1. add: 3"}
	if diff := cmp.Diff(want, messagesOf(t, c, thread.ID)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	var steps []string
	for page := c.Beta.Threads.Runs.Steps.ListAutoPaging(ctx, thread.ID, run.ID,
		openai.BetaThreadRunStepListParams{Limit: openai.Int(1)}); page.Next(); {
		steps = append(steps, string(page.Current().Type)+" "+string(page.Current().Status))
	}
	if diff := cmp.Diff([]string{"message_creation completed", "tool_calls completed"}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestAssistantsCrash kills the server while a run says a message. The next life asks
// the model again; what was half said is in no list, and the thread continues.
func TestAssistantsCrash(t *testing.T) {
	upstream := httptest.NewServer(&slowUpstream{})
	t.Cleanup(upstream.Close)
	s := newServer(t, "OPENAI_BASE_URL="+upstream.URL, "OPENAI_API_KEY=none")
	c, ctx := s.client(), t.Context()
	a, err := c.Beta.Assistants.New(ctx, openai.BetaAssistantNewParams{Model: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	stream := c.Beta.Threads.NewAndRunStreaming(ctx, openai.BetaThreadNewAndRunParams{AssistantID: a.ID,
		Thread: openai.BetaThreadNewAndRunParamsThread{
			Messages: []openai.BetaThreadNewAndRunParamsThreadMessage{{Role: "user",
				Content: openai.BetaThreadNewAndRunParamsThreadMessageContentUnion{OfString: openai.String("hi")}}}}})
	var thread, run, message string
	for stream.Next() {
		switch ev := stream.Current(); ev.Event {
		case "thread.run.created":
			run, thread = ev.Data.ID, ev.Data.ThreadID
		case "thread.message.created":
			message = ev.Data.ID
		}
		if stream.Current().Event == "thread.message.delta" {
			break
		}
	}
	s.kill()
	stream.Close()
	s.start()
	c = s.client()
	s.waitUntil("the run is complete", func() bool {
		r, err := c.Beta.Threads.Runs.Get(ctx, thread, run)
		return err == nil && r.Status == openai.RunStatusCompleted
	})
	_, err = c.Beta.Threads.Messages.Get(ctx, thread, message)
	wantStatus(t, "the message that was half said", err, http.StatusNotFound)
	if _, err := c.Beta.Threads.Messages.New(ctx, thread, openai.BetaThreadMessageNewParams{Role: "user",
		Content: openai.BetaThreadMessageNewParamsContentUnion{OfString: openai.String("and?")}}); err != nil {
		t.Fatal(err)
	}
	next, err := c.Beta.Threads.Runs.New(ctx, thread, openai.BetaThreadRunNewParams{AssistantID: a.ID})
	if err != nil {
		t.Fatal(err)
	}
	s.waitUntil("the next run is complete", func() bool {
		r, err := c.Beta.Threads.Runs.Get(ctx, thread, next.ID)
		return err == nil && r.Status == openai.RunStatusCompleted
	})
	want := []string{"user completed: hi", "assistant completed: Half and half.", "user completed: and?",
		"assistant completed: Half and half."}
	if diff := cmp.Diff(want, messagesOf(t, c, thread)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

package e2e

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

func chatTask(messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "scripted", Messages: messages}
}

// TestGoChat uses Chat Completions with the official Go client: its accumulator,
// a loop of calls and outputs, and the stored response.
func TestGoChat(t *testing.T) {
	s := newServer(t)
	c := s.client().Chat.Completions
	task := chatTask(openai.SystemMessage("Add."),
		openai.UserMessage("```json add\n{\"a\":1,\"b\":2}\n```\n```json add\n{\"a\":3,\"b\":4}\n```"))
	task.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "add", Parameters: shared.FunctionParameters{"type": "object"}})}
	for _, output := range []string{"3", "7"} {
		var all openai.ChatCompletionAccumulator
		var called openai.FinishedChatCompletionToolCall
		stream := c.NewStreaming(t.Context(), task)
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				t.Fatalf("the accumulator refuses %s", stream.Current().RawJSON())
			}
			if call, ok := all.JustFinishedToolCall(); ok {
				called = call
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		choice := all.Choices[0]
		if choice.FinishReason != "tool_calls" || called.Name != "add" || called.ID == "" ||
			called.ID != choice.Message.ToolCalls[0].ID {
			t.Fatalf("got %+v, %+v", choice, called)
		}
		task.Messages = append(task.Messages, choice.Message.ToParam(), openai.ToolMessage(output, called.ID))
	}
	task.Store, task.Metadata = openai.Bool(true), shared.Metadata{"of": "TestGoChat"}
	last, err := c.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := last.Choices[0].Message.Content, "1. add: 3\n2. add: 7"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	var kept []string
	for page := c.ListAutoPaging(t.Context(), openai.ChatCompletionListParams{Metadata: task.Metadata}); page.Next(); {
		kept = append(kept, page.Current().ID)
	}
	if diff := cmp.Diff([]string{last.ID}, kept); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	var roles []string
	for page := c.Messages.ListAutoPaging(t.Context(), last.ID,
		openai.ChatCompletionMessageListParams{Limit: openai.Int(2)}); page.Next(); {
		roles = append(roles, string(page.Current().Role))
	}
	if diff := cmp.Diff([]string{"system", "user", "assistant", "tool", "assistant", "tool"}, roles); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	s.kill()
	s.start() // elsewhere: the address is another one
	c = s.client().Chat.Completions
	if got, err := c.Get(t.Context(), last.ID); err != nil ||
		got.Choices[0].Message.Content != last.Choices[0].Message.Content {
		t.Errorf("after a crash: got %+v, %v", got, err)
	}
	if _, err := c.Delete(t.Context(), last.ID); err != nil {
		t.Error(err)
	}
	_, err = c.Get(t.Context(), last.ID)
	if apiErr, ok := errors.AsType[*openai.Error](err); !ok || apiErr.StatusCode != http.StatusNotFound {
		t.Errorf("deleted: got %v", err)
	}
}

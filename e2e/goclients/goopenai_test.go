package goclients

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
)

func TestGoOpenAI(t *testing.T) {
	config := openai.DefaultConfig("none")
	config.BaseURL = baseURL(t)
	c := openai.NewClientWithConfig(config)
	function := &openai.FunctionDefinition{Name: "tide", Parameters: parameters}

	t.Run("Chat Completions: tool over several turns, streamed, with usage", func(t *testing.T) {
		request := openai.ChatCompletionRequest{Model: reciter,
			StreamOptions: &openai.StreamOptions{IncludeUsage: true},
			Messages:      []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: twoTides}},
			Tools:         []openai.Tool{{Type: openai.ToolTypeFunction, Function: function}}}
		for range 2 {
			message, _ := stream(t, c, request)
			if len(message.ToolCalls) != 1 {
				t.Fatalf("the model said %+v", message)
			}
			call := message.ToolCalls[0]
			request.Messages = append(request.Messages, message,
				openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool, ToolCallID: call.ID, Name: "tide",
					Content: tide(call.Function.Arguments)})
		}
		message, usage := stream(t, c, request)
		if message.Content != atKiel || usage == nil || usage.TotalTokens != 7 {
			t.Errorf("got %q, %+v", message.Content, usage)
		}
	})

	t.Run("Responses: shell in a container, several turns", func(t *testing.T) {
		tools := []openai.ResponseTool{{Type: "shell",
			Parameters: map[string]any{"environment": map[string]any{"type": "container_auto"}}}}
		one, err := c.CreateResponse(t.Context(), openai.CreateResponseRequest{Model: scripted,
			Input: sh("echo 41 > n"), Tools: tools})
		if err != nil {
			t.Fatal(err)
		}
		two, err := c.CreateResponse(t.Context(), openai.CreateResponseRequest{Model: scripted,
			Input: sh("echo $(($(cat n) + 1))"), Tools: tools, PreviousResponseID: one.ID})
		if err != nil {
			t.Fatal(err)
		}
		if got := two.GetOutputText(); got != "1. exit 0: 42" {
			t.Errorf("got %q", got)
		}
		if kept, err := c.RetrieveResponse(t.Context(), two.ID); err != nil ||
			kept.GetOutputText() != two.GetOutputText() {
			t.Errorf("retrieved %+v, %v", kept, err)
		}
		if _, err := c.DeleteResponse(t.Context(), two.ID); err != nil {
			t.Error(err)
		}
	})

	t.Run("Responses: stream", func(t *testing.T) {
		events, err := c.CreateResponseStream(t.Context(), openai.CreateResponseRequest{Model: scripted,
			Input: "calm sea, light wind"})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		var got strings.Builder
		for {
			e, err := events.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == "response.output_text.delta" {
				got.WriteString(e.Delta)
			}
		}
		if got.String() != "calm sea, light wind" {
			t.Errorf("got %q", got.String())
		}
	})

	t.Run("files", func(t *testing.T) {
		f, err := c.CreateFileBytes(t.Context(), openai.FileBytesRequest{Name: "n.txt", Bytes: []byte("41"),
			Purpose: "user_data"})
		if err != nil {
			t.Fatal(err)
		}
		content, err := c.GetFileContent(t.Context(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		if raw, err := io.ReadAll(content); err != nil || string(raw) != "41" {
			t.Errorf("got %q, %v", raw, err)
		}
		if err := c.DeleteFile(t.Context(), f.ID); err != nil {
			t.Error(err)
		}
	})

	t.Run("assistant with a thread", func(t *testing.T) {
		a, err := c.CreateAssistant(t.Context(), openai.AssistantRequest{Model: scripted})
		if err != nil {
			t.Fatal(err)
		}
		run, err := c.CreateThreadAndRun(t.Context(),
			openai.CreateThreadAndRunRequest{RunRequest: openai.RunRequest{AssistantID: a.ID},
				Thread: openai.ThreadRequest{Messages: []openai.ThreadMessage{{Role: openai.ThreadMessageRoleUser,
					Content: "calm sea"}}}})
		for err == nil && (run.Status == openai.RunStatusQueued || run.Status == openai.RunStatusInProgress) {
			run, err = c.RetrieveRun(t.Context(), run.ThreadID, run.ID)
		}
		if err != nil || run.Status != openai.RunStatusCompleted {
			t.Fatalf("the run is %+v, %v", run, err)
		}
		list, err := c.ListMessage(t.Context(), run.ThreadID, nil, nil, nil, nil, nil)
		if err != nil || len(list.Messages) != 2 || list.Messages[0].Content[0].Text.Value != "calm sea" {
			t.Errorf("got %+v, %v", list.Messages, err)
		}
	})

	t.Run("errors", func(t *testing.T) {
		_, err := c.CreateResponse(t.Context(), openai.CreateResponseRequest{Model: "none such", Input: "x"})
		var refused *openai.APIError
		if !errors.As(err, &refused) || refused.HTTPStatusCode != http.StatusNotFound ||
			refused.Code != "model_not_found" {
			t.Errorf("got %v", err)
		}
	})
}

// stream asks for a completion and puts its chunks together.
func stream(t *testing.T, c *openai.Client, request openai.ChatCompletionRequest) (openai.ChatCompletionMessage,
	*openai.Usage) {
	t.Helper()
	chunks, err := c.CreateChatCompletionStream(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer chunks.Close()
	message := openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant}
	var usage *openai.Usage
	for {
		chunk, err := chunks.Recv()
		if errors.Is(err, io.EOF) {
			return message, usage
		}
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Usage != nil {
			usage = chunk.Usage
		}
		for _, choice := range chunk.Choices {
			message.Content += choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				if call.ID != "" {
					message.ToolCalls = append(message.ToolCalls, call) // with its index, as many programs do
					continue
				}
				message.ToolCalls[*call.Index].Function.Arguments += call.Function.Arguments
			}
		}
	}
}

package goclients

import (
	"context"
	"testing"

	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/openai"
)

func TestLangChainGo(t *testing.T) {
	llm, err := openai.New(openai.WithBaseURL(baseURL(t)), openai.WithToken("none"), openai.WithModel(reciter))
	if err != nil {
		t.Fatal(err)
	}
	tools := llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: "tide",
		Parameters: parameters}}})

	t.Run("text and stream", func(t *testing.T) {
		var streamed string
		got, err := llms.GenerateFromSinglePrompt(t.Context(), llm, "calm sea",
			llms.WithStreamingFunc(func(_ context.Context, chunk []byte) error {
				streamed += string(chunk)
				return nil
			}))
		if err != nil || got != "You said: calm sea" || streamed != got {
			t.Errorf("got %q, streamed %q, %v", got, streamed, err)
		}
	})

	t.Run("tool over several turns", func(t *testing.T) {
		messages := []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, twoTides)}
		for range 2 {
			r, err := llm.GenerateContent(t.Context(), messages, tools)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Choices[0].ToolCalls) != 1 {
				t.Fatalf("the model said %+v", r.Choices[0])
			}
			call := r.Choices[0].ToolCalls[0]
			messages = append(messages,
				llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{call}},
				llms.MessageContent{Role: llms.ChatMessageTypeTool,
					Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: call.ID, Name: "tide",
						Content: tide(call.FunctionCall.Arguments)}}})
		}
		r, err := llm.GenerateContent(t.Context(), messages, tools)
		if err != nil || r.Choices[0].Content != atKiel {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

package goclients

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
)

func TestEino(t *testing.T) {
	model, err := openai.NewChatModel(t.Context(), &openai.ChatModelConfig{BaseURL: baseURL(t), APIKey: "none",
		Model: reciter})
	if err != nil {
		t.Fatal(err)
	}
	high, err := utils.InferTool("tide", "Says when the tide is high.", func(_ context.Context, p port) (string,
		error) {
		return "high at noon in " + p.Port, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := react.NewAgent(t.Context(), &react.AgentConfig{ToolCallingModel: model,
		ToolsConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{high}}})
	if err != nil {
		t.Fatal(err)
	}
	task := []*schema.Message{schema.UserMessage(twoTides)}

	t.Run("ReAct agent with a tool over several turns", func(t *testing.T) {
		m, err := agent.Generate(t.Context(), task)
		if err != nil || m.Content != atKiel {
			t.Errorf("got %+v, %v", m, err)
		}
	})

	t.Run("the same, streamed", func(t *testing.T) {
		chunks, err := agent.Stream(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		defer chunks.Close()
		var got string
		for {
			m, err := chunks.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got += m.Content
		}
		if got != atKiel {
			t.Errorf("got %q", got)
		}
	})
}

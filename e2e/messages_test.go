package e2e

import (
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/responses"
)

// TestMessages runs code with Anthropic's client, streamed or not, and continues in the same container with a
// message and with a response.
func TestMessages(t *testing.T) {
	s := newServer(t)
	c := anthropic.NewClient(option.WithBaseURL(s.url), option.WithAPIKey("none"))
	task := func(text, container string) anthropic.BetaMessageNewParams {
		p := anthropic.BetaMessageNewParams{Model: "scripted", MaxTokens: 1000,
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(text))},
			Tools: []anthropic.BetaToolUnionParam{{
				OfCodeExecutionTool20250825: &anthropic.BetaCodeExecutionTool20250825Param{}}}}
		if container != "" {
			p.Container.OfString = anthropic.String(container)
		}
		return p
	}
	printed := func(m *anthropic.BetaMessage) (all []string) {
		for _, b := range m.Content {
			if b.Type == "bash_code_execution_tool_result" {
				r := b.AsBashCodeExecutionToolResult().Content
				all = append(all, strings.TrimSpace(r.Stdout+r.Stderr))
			}
		}
		return all
	}
	one, err := c.Beta.Messages.New(t.Context(), task(fence("echo 41 > n; export STEP=1", "echo $STEP; cat n"), ""))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "1\n41"}, printed(one)); diff != "" {
		t.Errorf("first message (-want +got):\n%s", diff)
	}
	if one.Container.ID == "" || one.Container.ExpiresAt.IsZero() || one.StopReason != "end_turn" {
		t.Fatalf("the message ends with %s in container %s", one.StopReason, one.Container.RawJSON())
	}
	stream := c.Beta.Messages.NewStreaming(t.Context(), task(fence("echo $(($(cat n) + 1)) >m; mv m n; cat n"), one.Container.ID))
	var two anthropic.BetaMessage
	for stream.Next() {
		if err := two.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"42"}, printed(&two)); diff != "" || two.Container.ID != one.Container.ID {
		t.Errorf("second message, in %s (-want +got):\n%s", two.Container.ID, diff)
	}
	next := shellTask(fence("cat n"))
	next.Tools = []responses.ToolUnionParam{{OfShell: &responses.FunctionShellToolParam{
		Environment: responses.FunctionShellToolEnvironmentUnionParam{
			OfContainerReference: &responses.ContainerReferenceParam{ContainerID: one.Container.ID}}}}}
	three, err := s.client().Responses.New(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"42\n"}, stdouts(three)); diff != "" {
		t.Errorf("response in the same container (-want +got):\n%s", diff)
	}
}

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/model/modeltest"
)

// TestVendors: a chain goes from vendor to vendor with its container, its files and
// what was said, and back to the first.
func TestVendors(t *testing.T) {
	chat, native := modeltest.NewChatServer(t, recite), modeltest.NewOpenAIServer(t, recite)
	claude, gemini := modeltest.NewAnthropicServer(t, recite), modeltest.NewGeminiServer(t, recite)
	s := newServerWith(t, fmt.Sprintf(`
models:
  - {match: qwen*, provider: chat, base_url: %q, api_key: none}
  - {match: gpt-*, provider: openai, base_url: %q, api_key: none}
  - {match: claude-*, provider: anthropic, base_url: %q, api_key: none}
  - {match: gemini-*, provider: gemini, base_url: %q, api_key: none}
`, chat.URL, native.URL, claude.URL, gemini.URL))
	c := s.client()
	var trail, previous, container string
	for _, model := range []string{"qwen3-32b", "claude-opus-5-5", "gemini-3.5-flash", "gpt-5.5", "claude-opus-5-5",
		"qwen3-32b"} {
		task := shellTask("```shell\n" + `{"commands":["echo ` + model + ` >> trail; cat trail"]}` + "\n```")
		task.Model = model
		if previous != "" {
			task.PreviousResponseID = openai.String(previous)
		}
		r, err := c.Responses.New(t.Context(), task)
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		trail += model + "\n"
		if got := stdouts(r); len(got) != 1 || got[0] != trail || r.Status != responses.ResponseStatusCompleted {
			t.Errorf("%s: got %s with %q, want %q", model, r.Status, got, trail)
		}
		if box := r.Tools[0].AsShell().Environment.ContainerID; container != "" && box != container {
			t.Errorf("%s works in %s, and not in %s", model, box, container)
		} else {
			container = box
		}
		previous = r.ID
	}
	heard := chat.Requests()
	last := heard[len(heard)-1]
	calls, users := 0, 0
	for _, m := range last.Messages {
		calls += len(m.Calls)
		if m.Role == "user" {
			users += strings.Count(m.Text, "```shell")
		}
	}
	if calls != 6 || users != 6 {
		t.Errorf("the first vendor heard %d calls and %d tasks in the end, want 6", calls, users)
	}
}

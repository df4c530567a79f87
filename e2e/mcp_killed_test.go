package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// TestMCPKilled kills the server during a call. After the restart the call is not sent again: it
// failed and may have run, and the next call is made.
func TestMCPKilled(t *testing.T) {
	received := make(chan string, 10)
	server := sdk.NewServer(&sdk.Implementation{Name: "lab", Version: "1"}, nil)
	for _, name := range []string{"hang", "echo"} {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				received <- name
				if name == "hang" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "still here"}}}, nil
			})
	}
	lab := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(func() { lab.CloseClientConnections(); lab.Close() })
	s := newServerWith(t, fmt.Sprintf("mcp: {private: ['%s']}\n", strings.TrimPrefix(lab.URL, "http://")))
	task, tools := mcpTask(map[string]any{"server_url": lab.URL}, "hang {}", "echo {}")
	task.Background = openai.Bool(true)
	r, err := s.client().Responses.New(t.Context(), task, tools)
	if err != nil {
		t.Fatal(err)
	}
	if name := receive(t, received, "the first call is received"); name != "hang" {
		t.Fatalf("received %s", name)
	}
	s.kill()
	s.start()
	s.waitUntil("the response has ended", func() bool {
		r, err = s.client().Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
		return err == nil && r.Status != "in_progress" && r.Status != "queued"
	})
	var shown []string
	for _, it := range r.Output {
		if it.Type == "mcp_call" {
			call := it.AsMcpCall()
			shown = append(shown, call.Name+" "+string(call.Status)+" "+call.Output)
		}
	}
	if got := strings.Join(shown, ", "); r.Status != "completed" || got != "hang failed , echo completed still here" ||
		!strings.Contains(r.RawJSON(), "may have run") {
		t.Errorf("%s: %s", got, r.RawJSON())
	}
	if next := receive(t, received, "the second call is received"); next != "echo" || len(received) > 0 {
		t.Errorf("after the restart the server received %s and %d more", next, len(received))
	}
}

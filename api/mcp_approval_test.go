package api_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
)

var approvalIDs = regexp.MustCompile(`appr_\w+`)

// A call of a client without elicitation waits until a person approves it by the API, as the console does.
func TestMCPApprovalByPerson(t *testing.T) {
	t.Parallel()
	for _, version := range mcpVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			h.key("sk-a", "proj_a")
			asked := make(chan string, 10)
			s := h.mcpClient("?container=box&approval=always", version, &sdk.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
					if id := approvalIDs.FindString(r.Params.Message); id != "" {
						asked <- id
					}
				}})
			type result struct {
				failed bool
				text   string
			}
			call := func(content string) <-chan result {
				ended := make(chan result, 1)
				go func() {
					params := &sdk.CallToolParams{Name: "write", Arguments: map[string]any{"path": "a", "content": content}}
					params.SetProgressToken("p-" + content)
					r, err := s.CallTool(t.Context(), params)
					if err != nil {
						ended <- result{true, err.Error()}
						return
					}
					ended <- result{r.IsError, fmt.Sprint(r.Content[0].(*sdk.TextContent).Text)}
				}()
				return ended
			}
			one := call("one")
			id := <-asked
			a := h.call(200, "GET", "/v1/approvals/"+id, nil)
			if a["tool"] != "write" || a["status"] != "pending" || a["container"] != "box" ||
				a.at("arguments", "content") != "one" {
				t.Errorf("the question is %v", a)
			}
			if got := h.call(200, "GET", "/v1/approvals", nil).at("data", 0, "id"); got != id {
				t.Errorf("the list has %v", got)
			}
			h.call(400, "POST", "/v1/approvals/"+id, `{}`)
			h.call(200, "POST", "/v1/approvals/"+id, `{"approve":true}`)
			if r := <-one; r.failed {
				t.Errorf("an approved call: %q", r.text)
			}
			h.call(404, "POST", "/v1/approvals/"+id, `{"approve":true}`)
			two := call("two")
			id = <-asked
			h.call(200, "POST", "/v1/approvals/"+id, `{"approve":false,"reason":"one is enough"}`)
			if r := <-two; !r.failed || !strings.Contains(r.text, "not approved this call: one is enough") {
				t.Errorf("a denied call: %q", r.text)
			}
			if got := h.mcpCall(s, "read", map[string]any{"path": "a"}, nil); got != "one" {
				t.Errorf("the file has %q", got)
			}
		})
	}
}

// A client that gives up makes the same call again. A key that may not approve cannot answer its own call, and a client
// with elicitation is not asked if the console is.
func TestMCPApprovalLater(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.MCP.Patience = 1 })
	h.key("sk-person", "proj_a")
	h.token = "sk-runner"
	check(t, h.store.CreateKey(t.Context(), &berth.Key{ID: "key_runner", Project: "proj_a", Role: berth.RoleRunner,
		Hash: sha256.Sum256([]byte(h.token)), CreatedAt: 1}))
	s := h.mcpClient("?container=box&approval=console", "2025-11-25", &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			t.Error("the client was asked")
			return &sdk.ElicitResult{Action: "accept"}, nil
		}})
	command := map[string]any{"command": "echo ahoy"}
	r, text := h.mcpTry(s, "run", command)
	id := approvalIDs.FindString(text)
	if !r.IsError || id == "" || !strings.Contains(text, "same call again") {
		t.Fatalf("a call that waits: %q", text)
	}
	h.call(403, "POST", "/v1/approvals/"+id, `{"approve":true}`)
	h.token = "sk-person"
	h.call(200, "POST", "/v1/approvals/"+id, `{"approve":true}`)
	if r, text := h.mcpTry(s, "run", map[string]any{"command": "echo other"}); !r.IsError {
		t.Errorf("another call: %q", text)
	}
	if got := h.mcpCall(s, "run", command, nil); got != "ahoy\n" {
		t.Errorf("the approved call: %q", got)
	}
	if r, text := h.mcpTry(s, "run", command); !r.IsError || approvalIDs.FindString(text) == id {
		t.Errorf("the same call once more: %q", text)
	}
	if r, text := h.mcpTry(s, "write", map[string]any{"path": "a", "content": strings.Repeat("x", 70<<10)}); !r.IsError ||
		!strings.Contains(text, "must see all of it") {
		t.Errorf("more than a person sees: %q", text)
	}
}

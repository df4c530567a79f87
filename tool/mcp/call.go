package mcp

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

//go:embed mcp.md
var description string

// cancelGrace bounds the time to close the item of a cancelled call.
const cancelGrace = 5 * time.Second

// A serverTool is one tool of a server.
type serverTool struct {
	source *source
	listed berth.MCPListedTool
}

var (
	_ tool.Tool     = serverTool{}
	_ tool.Approver = serverTool{}
	_ tool.Markable = (*call)(nil)
)

// Spec implements tool.Tool.
func (t serverTool) Spec() tool.Spec {
	about := ""
	if text := t.source.tool.ServerDescription; text != "" {
		about = ": " + text
	}
	text := strings.NewReplacer("{description}", t.listed.Description, "{label}", t.source.Label(), "{about}",
		about).Replace(description)
	return tool.Spec{Function: tool.Function(tool.ServerFunction(t.source.Label(), t.listed.Name),
		strings.TrimSpace(text), t.listed.InputSchema),
		Call: berth.ItemMCPCall}
}

// Approval implements tool.Approver.
func (t serverTool) Approval() (serverLabel, name string, needed bool) {
	return t.source.Label(), t.listed.Name, t.source.tool.RequireApproval.Requires(t.listed)
}

// NewCall implements tool.Tool.
func (t serverTool) NewCall(string) tool.Call {
	return &call{tool: t, item: berth.MCPCall{ID: berth.NewID(berth.PrefixMCPCall), Type: berth.ItemMCPCall,
		Status: berth.StatusInProgress, Name: t.listed.Name, ServerLabel: t.source.Label()}}
}

// ResumeCall implements tool.Tool. A call whose arguments are done was perhaps sent to the
// server. It is not sent again.
func (t serverTool) ResumeCall(item, _ berth.Item, stored []berth.Event) (tool.Call, error) {
	c := &call{tool: t}
	if err := item.Decode(&c.item); err != nil {
		return nil, err
	}
	for _, ev := range stored {
		if ev.Type == berth.EventMCPArgumentsDone && ev.Arguments != nil {
			c.item.Arguments, c.interrupted = *ev.Arguments, true
			return c, nil
		}
	}
	return nil, nil
}

// A call is one call of a server's tool. Its item holds its output.
type call struct {
	tool        serverTool
	item        berth.MCPCall
	begun       bool // its first event was returned
	interrupted bool // an earlier process may have sent it
}

func (c *call) Item() berth.Item { return berth.NewItem(c.item) }

// Mark implements tool.Markable.
func (c *call) Mark(m berth.CallBerth) { c.item.ApprovalRequestID = &m.ApprovalRequestID }

func (c *call) Write(arguments string) []berth.Event {
	return append(c.begin(), berth.Event{Type: berth.EventMCPArgumentsDelta, ItemID: c.item.ID,
		Delta: berth.StringDelta(arguments)})
}

func (c *call) begin() []berth.Event {
	if c.begun {
		return nil
	}
	c.begun = true
	return []berth.Event{{Type: berth.EventMCPCallInProgress, ItemID: c.item.ID}}
}

func (c *call) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	if strings.TrimSpace(arguments) == "" {
		arguments = "{}"
		events = c.Write(arguments)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) != nil || object == nil {
		c.item.Status, c.item.Arguments = berth.StatusIncomplete, arguments
		return events, c.Item(), "The arguments of this call are not a JSON object. The server was not called."
	}
	c.item.Arguments = arguments
	return events, c.Item(), ""
}

// Run sends the call to the server. It stores the end of the arguments first, so that a
// process that resumes the response knows that the call may have been sent.
func (c *call) Run(ctx context.Context, out tool.Emitter) error {
	if c.interrupted {
		return c.end(ctx, out,
			failure(codeClosed,
				"The server was restarted during this call. The call may have run, and its result is lost."))
	}
	done := berth.Event{Type: berth.EventMCPArgumentsDone, ItemID: c.item.ID, Arguments: &c.item.Arguments}
	if err := out.Emit(ctx, out.Call(), done); err != nil {
		return err
	}
	got := c.tool.source.call(ctx, c.item.Name, c.item.Arguments)
	if ctx.Err() == nil {
		return c.end(ctx, out, got)
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, tool.ErrDetached) {
		return cause
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	return errors.Join(cause, c.end(last, out, failure(codeClosed, "The call was cancelled. It may have run.")))
}

// end closes the item with a result.
func (c *call) end(ctx context.Context, out tool.Emitter, got result) error {
	c.item.Status, c.item.Output, c.item.Error = berth.StatusCompleted, got.output, got.err
	ev := berth.Event{Type: berth.EventMCPCallCompleted, ItemID: c.item.ID}
	if got.err != nil {
		c.item.Status, ev.Type = berth.StatusFailed, berth.EventMCPCallFailed
	}
	if err := out.Emit(ctx, out.Call(), ev); err != nil {
		return err
	}
	return out.Done(ctx, out.Call(), c.Item())
}

// lowerCall returns a call with the arguments that the model wrote.
func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call struct {
		ServerLabel string `json:"server_label"`
		Name        string `json:"name"`
		Arguments   string `json:"arguments"`
	}
	err = item.Decode(&call)
	if !json.Valid([]byte(call.Arguments)) {
		call.Arguments = "{}" // of a client; upstreams accept only JSON
	}
	return tool.ServerFunction(call.ServerLabel, call.Name), call.Arguments, err
}

// maxShown bounds the output of a call that a model sees, in bytes.
const maxShown = 64 << 10

// lowerOutput returns the output of a call, or its error, marked as data.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	var call struct {
		ServerLabel string          `json:"server_label"`
		Name        string          `json:"name"`
		Output      *string         `json:"output"`
		Error       json.RawMessage `json:"error"`
	}
	if err := item.Decode(&call); err != nil {
		return nil, err
	}
	function := tool.ServerFunction(call.ServerLabel, call.Name)
	failed := len(call.Error) > 0 && string(call.Error) != "null"
	switch {
	case failed:
		return berth.StringDelta("The call failed.\n" + tool.Fence(function, tool.Shorten(words(call.Error),
			maxShown))), nil
	case call.Output != nil:
		return berth.StringDelta(tool.Fence(function, tool.Shorten(*call.Output, maxShown))), nil
	case item.Status() == berth.StatusCompleted || item.Status() == berth.StatusFailed:
		return berth.StringDelta("The call has no output."), nil
	}
	return nil, nil
}

// answer returns the output of a call as the server sent it: a program reads it.
func answer(item berth.Item) (tool.Answer, error) {
	var call struct {
		Output *string         `json:"output"`
		Error  json.RawMessage `json:"error"`
	}
	if err := item.Decode(&call); err != nil {
		return tool.Answer{}, err
	}
	if len(call.Error) > 0 && string(call.Error) != "null" {
		return tool.Answer{Error: "The call failed. " + tool.Shorten(words(call.Error), maxShown)}, nil
	}
	if call.Output == nil {
		return tool.Answer{Error: "The call has no output."}, nil
	}
	return tool.TextAnswer(*call.Output), nil
}

// words returns the text of an error, in the form of berth.MCPError or as a string.
func words(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var e berth.MCPError
	if json.Unmarshal(raw, &e) != nil {
		return string(raw)
	}
	if e.Message != "" {
		return e.Message
	}
	var parts []struct{ Text string }
	if json.Unmarshal(e.Content, &parts) != nil {
		return string(e.Content)
	}
	var lines []string
	for _, p := range parts {
		lines = append(lines, p.Text)
	}
	return strings.Join(lines, "\n")
}

// call calls a tool of the server.
func (s *source) call(ctx context.Context, name, arguments string) result {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.Timeout, errTimeout)
	defer cancel()
	defer s.release()
	var got *sdk.CallToolResult
	err := s.with(ctx, maxMessage, func(ctx context.Context, c *sdk.ClientSession) (err error) {
		got, err = c.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
		if err != nil {
			return fmt.Errorf("call tool: %w", err)
		}
		return nil
	})
	if err == nil {
		return resultOf(got, s.redactor())
	}
	failed := s.failed(err)
	failed.err.Message = s.redactor().Replace(failed.err.Message)
	return failed
}

package mcp

import (
	"context"
	"errors"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// addTools adds all tools to the server.
func (d *Door) addTools() {
	d.addCommandTools()
	d.addFileTools()
	add(d, readOnly("search", "Search files", searchText), search)
	add(d, changes("expose", "Get a link to a port", exposeText, true), expose)
	add(d, changes("containers", "Manage containers", containersText, false), manage)
}

// readOnly describes a tool that changes nothing.
func readOnly(name, title, description string) *sdk.Tool {
	return &sdk.Tool{Name: name, Title: title, Description: description, Annotations: &sdk.ToolAnnotations{Title: title,
		ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}}
}

// changes describes a tool that changes something. It is harmless if it only adds.
func changes(name, title, description string, harmless bool) *sdk.Tool {
	return &sdk.Tool{Name: name, Title: title, Description: description, Annotations: &sdk.ToolAnnotations{Title: title,
		DestructiveHint: new(!harmless), OpenWorldHint: new(false)}}
}

// inWorld marks a tool that may reach the network, as far as the container may.
func inWorld(t *sdk.Tool) *sdk.Tool {
	t.Annotations.OpenWorldHint = new(true)
	return t
}

// A call is a call of a tool.
type call struct {
	*visit
	request *sdk.CallToolRequest
	notify  context.Context // in which notifications belong to the call
}

// A tool runs a call. The text and the images are for the model, the output is for programs.
type tool[In, Out any] func(ctx context.Context, c *call, in In) ([]sdk.Content, Out, error)

// add adds a tool to the server.
func add[In, Out any](d *Door, t *sdk.Tool, run tool[In, Out]) {
	sdk.AddTool(d.server, t, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out,
		error) {
		var none Out
		v := visitOf(req.Extra)
		if v == nil {
			return nil, none, errors.New("the request has no caller")
		}
		release, err := d.admit(v.caller.Project)
		if err != nil {
			return nil, none, d.toolError(v, t.Name, err)
		}
		defer release()
		if v.ask && !t.Annotations.ReadOnlyHint {
			if r, err := approve(t, req); r != nil || err != nil {
				return r, none, err
			}
		}
		content, out, err := run(detached{ctx}, &call{v, req, ctx}, in)
		if err != nil {
			return nil, none, d.toolError(v, t.Name, err)
		}
		return &sdk.CallToolResult{Content: content}, out, nil
	})
}

// admit counts a call of a project. It refuses it if too many run.
func (d *Door) admit(p berth.ProjectID) (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls[p] >= d.Calls {
		return nil, berth.Errorf(berth.CodeRateLimited, "%d calls run already. Try again when one has ended.", d.Calls)
	}
	d.calls[p]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.calls[p]--; d.calls[p] == 0 {
			delete(d.calls, p)
		}
	}, nil
}

// toolError returns an error as the model reads it. It logs one that is the server's fault.
func (d *Door) toolError(v *visit, name string, err error) error {
	if e, ok := errors.AsType[*berth.Error](err); ok && e.Code != berth.CodeInternal {
		return errors.New(e.Message)
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("the call was cancelled")
	}
	d.Log.Error("tool failed", "tool", name, "request_id", v.caller.RequestID, "err", err)
	_, shown := exchange.Describe(err, v.caller.RequestID)
	return errors.New(shown.Message)
}

// detached is the context of a call without the values of the request that opened its session, which may have ended.
type detached struct{ context.Context }

func (detached) Value(any) any { return nil }

// text returns content that is one text.
func text(s string) []sdk.Content { return []sdk.Content{&sdk.TextContent{Text: s}} }

// seconds returns a duration of an argument within limits.
func seconds(n, otherwise, most int) time.Duration {
	if n <= 0 {
		n = otherwise
	}
	return time.Duration(min(n, most)) * time.Second
}

package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/internal/rule"
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
	sent    int             // bytes of progress
}

// progress returns a function that sends the client output, or nil if the client does not want any.
func (c *call) progress() func(string) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return func(text string) {
		c.sent += len(text)
		_ = c.request.Session.NotifyProgress(c.notify, &sdk.ProgressNotificationParams{ProgressToken: token,
			Message: text, Progress: float64(c.sent)}) // the result has the output too
	}
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
		c := &call{visit: v, request: req, notify: ctx}
		if v.ask != askNever && !t.Annotations.ReadOnlyHint {
			if r, err := c.approve(detached{ctx}, t); err != nil {
				return nil, none, d.toolError(v, t.Name, err)
			} else if r != nil {
				return r, none, nil
			}
		}
		content, out, err := run(detached{ctx}, c, in)
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

// approval is the id of the question whether a call may run.
const approval = "approval"

// maxShown bounds the arguments of a call that its user sees, in bytes.
const maxShown = 4096

// approve has a person approve a call: the user of the client, if that can ask, or else one in the console. It returns
// the question until the client has answered it.
func (c *call) approve(ctx context.Context, t *sdk.Tool) (*sdk.CallToolResult, error) {
	req := c.request
	client := req.Session.InitializeParams()
	if c.ask == askConsole || client == nil || client.Capabilities == nil || client.Capabilities.Elicitation == nil {
		return nil, c.askConsole(ctx, t)
	}
	if answer, ok := req.Params.InputResponses[approval].(*sdk.ElicitResult); ok {
		if answer.Action != "accept" {
			return nil, errNotApproved("")
		}
		return nil, nil
	}
	arguments := string(req.Params.Arguments)
	if len(arguments) > maxShown {
		arguments = fmt.Sprintf("%s… (the first %d of %d bytes)", arguments[:maxShown], maxShown, len(arguments))
	}
	return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{approval: &sdk.ElicitParams{Mode: "form",
		Message:         fmt.Sprintf("Run %s (%s)? %s", t.Name, rule.Clip(t.Title), arguments),
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}}}, nil
}

func errNotApproved(reason string) error {
	if reason == "" {
		return berth.Errorf(berth.CodeForbidden, "the user has not approved this call")
	}
	return berth.Errorf(berth.CodeForbidden, "the user has not approved this call: %s", reason)
}

// askConsole waits until a person has approved a call in the console, or by the API.
func (c *call) askConsole(ctx context.Context, t *sdk.Tool) error {
	if c.door.Approvals == nil {
		return berth.Errorf(berth.CodeUnavailable, "This server keeps no approvals.")
	}
	scope := struct {
		Session string
		Spec    any
	}{Spec: c.spec}
	if c.session != nil && c.spec.Name == "" {
		scope.Session = c.session.ID // its container is its own
	}
	limited, cancel := context.WithTimeout(ctx, c.door.Patience)
	defer cancel()
	show := c.progress()
	a, err := c.door.Approvals.Ask(limited, c.caller, approvals.Call{Tool: t.Name, Title: t.Title,
		Arguments: c.request.Params.Arguments, Container: c.spec.Name, Scope: scope}, func(a *approvals.Approval) {
		if show != nil {
			show(fmt.Sprintf("Waiting for a person who approves this call in Berth's console (%s).\n", a.ID))
		}
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Canceled
	case a.Status == approvals.Denied:
		return errNotApproved(a.Reason)
	case a.Status != approvals.Approved:
		return berth.Errorf(berth.CodeUnavailable, "This call waits for approval %s: a person approves it in Berth's "+
			"console. Ask the user to do that, then make exactly the same call again.", a.ID)
	}
	return nil
}

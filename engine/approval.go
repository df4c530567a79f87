package engine

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/tool"
)

// approvalLabel is the server_label of requests for approval: no MCP server's.
const approvalLabel = "berth"

// A heldCall is a hosted call of which nothing is shown until all of it is known:
// then it is an ordinary call, or a request that the client approve of it.
type heldCall struct {
	tool.Call
	name     string // of the function
	commands func(berth.Item) []string
	policy   *berth.ApprovalPolicy

	opened berth.Item // what is shown first; zero until all is known
	waits  bool       // for the client
}

func (h *heldCall) Item() berth.Item           { return h.opened }
func (h *heldCall) Write(string) []berth.Event { return nil }

func (h *heldCall) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	opened := h.Call.Item()
	events, item, refusal = h.Call.Close(arguments)
	if item.Status() != berth.StatusCompleted || !slices.ContainsFunc(h.commands(item), h.policy.Requires) {
		h.opened = opened
		return events, item, refusal // one that cannot be run is answered with what is wrong
	}
	h.waits = true
	h.opened = berth.NewItem(berth.ApprovalRequest{ID: berth.NewID(berth.PrefixApproval), Type: berth.ItemApprovalRequest,
		Arguments: arguments, Name: h.name, ServerLabel: approvalLabel})
	return nil, h.opened, ""
}

// hold makes a call of a hosted tool wait for approval if the request asks for that.
func (r *run) hold(c tool.Call, t *boundTool) tool.Call {
	b := r.record.Request.Berth
	if b == nil || b.RequireApproval == nil || t.kind.Calls.Commands == nil {
		return c
	}
	return &heldCall{Call: c, name: t.Spec().Function.Name, commands: t.kind.Calls.Commands, policy: b.RequireApproval}
}

// checkApprovals refuses approval responses without a request, second ones, and approval
// of a call whose tool this request does not have.
func (e *Engine) checkApprovals(chain, input []berth.Item, tools toolset) error {
	asked := transcript.ApprovalsOf(e.Tools, slices.Concat(chain, input))
	answered := transcript.ApprovalsOf(e.Tools, chain).Responses
	for _, it := range input {
		var answer berth.ApprovalResponse
		if it.Type() != berth.ItemApprovalResponse || it.Decode(&answer) != nil {
			continue
		}
		id := answer.ApprovalRequestID
		request, ok := asked.Requests[id]
		if !ok {
			return berth.Invalid("input", "No approval request found with id '%s'.", id)
		}
		if _, twice := answered[id]; twice {
			return berth.Invalid("input", "Approval request '%s' has been answered already.", id)
		}
		answered[id] = answer
		if answer.Approve && !asked.Made[id] && tools.hosted(request.Name) == nil {
			return berth.Invalid("tools", "What approval request '%s' asks for runs in a container: the request needs a tool of type '%s' that has one.", id, request.Name)
		}
	}
	return nil
}

// approved opens the calls that the request's input approves of. They become the
// response's first pending calls.
func (r *run) approved(ctx context.Context) error {
	all := transcript.ApprovalsOf(r.engine.Tools, r.transcript.Items())
	var approved []berth.ApprovalRequest
	for _, it := range r.transcript.Input {
		var answer berth.ApprovalResponse
		if it.Type() == berth.ItemApprovalResponse && it.Decode(&answer) == nil && answer.Approve && !all.Made[answer.ApprovalRequestID] {
			approved = append(approved, all.Requests[answer.ApprovalRequestID])
		}
	}
	if len(approved) == 0 {
		return nil
	}
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		var all []berth.Event
		next := len(body.Output)
		for _, request := range approved {
			events, call := r.open(next, request.Name, request.Arguments, berth.CallBerth{ApprovalRequestID: request.ID})
			all = append(all, events...)
			r.pending = append(r.pending, call)
			next++
		}
		return all
	})
}

// open returns a call of a hosted tool that the engine makes itself, and the events
// that show it at a place, marked with its reason.
func (r *run) open(place int, name, arguments string, mark berth.CallBerth) ([]berth.Event, tool.Call) {
	call := r.tools.byName[name].NewCall(berth.NewID(berth.PrefixCall))
	opened := with(call.Item(), map[string]any{"berth": mark})
	events, item, _ := call.Close(arguments)
	mark.Invalid = r.engine.Tools.MarkOf(item).Invalid
	return append(append([]berth.Event{added(place, opened)}, at(place, events)...), done(place, with(item, map[string]any{"berth": mark}))), call
}

// asksForApproval reports whether an item waits for the client.
func asksForApproval(it berth.Item) bool { return it.Type() == berth.ItemApprovalRequest }

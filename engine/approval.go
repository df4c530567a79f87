package engine

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/tool"
)

// approvalLabel is the server_label of approval requests, which no MCP server makes.
const approvalLabel = "berth"

// A heldCall is a hosted call that is hidden until its arguments are complete. Then it
// becomes an ordinary call, or a request for the client's approval.
type heldCall struct {
	tool.Call
	name     string // of the function
	commands func(berth.Item) []string
	policy   *berth.ApprovalPolicy

	opened berth.Item // the first item that is shown; zero until then
	waits  bool       // for the client's approval
}

func (h *heldCall) Item() berth.Item           { return h.opened }
func (h *heldCall) Write(string) []berth.Event { return nil }

func (h *heldCall) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	opened := h.Call.Item()
	events, item, refusal = h.Call.Close(arguments)
	if item.Status() != berth.StatusCompleted || !slices.ContainsFunc(h.commands(item), h.policy.Requires) {
		h.opened = opened
		return events, item, refusal // an invalid call needs no approval: its output is the error
	}
	h.waits = true
	h.opened = berth.NewItem(berth.ApprovalRequest{ID: berth.NewID(berth.PrefixApproval), Type: berth.ItemApprovalRequest,
		Arguments: arguments, Name: h.name, ServerLabel: approvalLabel})
	return nil, h.opened, ""
}

// hold returns a call of a hosted tool as one that may wait for approval, if the request
// has an approval policy.
func (g *guard) hold(c tool.Call, t *boundTool) tool.Call {
	if g.rails.RequireApproval == nil || t.kind.Calls.Commands == nil {
		return c
	}
	return &heldCall{Call: c, name: t.Spec().Function.Name, commands: t.kind.Calls.Commands, policy: g.rails.RequireApproval}
}

// checkApprovals refuses an approval response without a request, a second response to one
// request, and the approval of a call whose tool is not offered.
func checkApprovals(kinds *tool.Registry, chain, input []berth.Item, tools toolset) error {
	all := transcript.ApprovalsOf(kinds, slices.Concat(chain, input))
	answered := transcript.ApprovalsOf(kinds, chain).Responses
	for _, it := range input {
		var answer berth.ApprovalResponse
		if it.Type() != berth.ItemApprovalResponse || it.Decode(&answer) != nil {
			continue
		}
		id := answer.ApprovalRequestID
		request, ok := all.Requests[id]
		if !ok {
			return berth.Invalid("input", "No approval request found with id '%s'.", id)
		}
		if _, twice := answered[id]; twice {
			return berth.Invalid("input", "Approval request '%s' has been answered already.", id)
		}
		answered[id] = answer
		if answer.Approve && !all.Made[id] && tools.hosted(request.Name) == nil {
			return berth.Invalid("tools", "Approval request '%s' is for a call that runs in a container. Add a tool of type '%s' with a container to 'tools'.", id, request.Name)
		}
	}
	return nil
}

// newlyApproved returns the requests among items that a response in the input approves of
// and whose call was not made yet.
func (g *guard) newlyApproved(items, input []berth.Item) []berth.ApprovalRequest {
	all := transcript.ApprovalsOf(g.kinds, items)
	var approved []berth.ApprovalRequest
	for _, it := range input {
		var answer berth.ApprovalResponse
		if it.Type() == berth.ItemApprovalResponse && it.Decode(&answer) == nil && answer.Approve && !all.Made[answer.ApprovalRequestID] {
			approved = append(approved, all.Requests[answer.ApprovalRequestID])
		}
	}
	return approved
}

// openApproved opens the calls that the request's input approves of. They become the
// response's first pending calls.
func (r *run) openApproved(ctx context.Context) error {
	approved := r.guard.newlyApproved(r.transcript.Items(), r.transcript.Input)
	if len(approved) == 0 {
		return nil
	}
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		var all []berth.Event
		next := len(body.Output)
		for _, request := range approved {
			events, call := r.guard.openCall(next, request.Name, request.Arguments, berth.CallBerth{ApprovalRequestID: request.ID})
			all = append(all, events...)
			r.pending = append(r.pending, pendingCall{call, next})
			next++
		}
		return all
	})
}

// needsApproval reports whether an item waits for the client's approval.
func needsApproval(it berth.Item) bool { return it.Type() == berth.ItemApprovalRequest }

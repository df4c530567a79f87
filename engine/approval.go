package engine

import (
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/tool"
)

// A heldCall is a hosted call that is hidden until its arguments are complete. Then it
// becomes an ordinary call, or a request for the client's approval.
type heldCall struct {
	tool.Call
	label    string // the server_label of a request
	name     string // of the function, or of the tool of a source
	requires func(closed berth.Item) bool

	opened berth.Item // the first item that is shown; zero until then
	waits  bool       // for the client's approval
}

func (h *heldCall) Item() berth.Item { return h.opened }

func (h *heldCall) Write(string) []berth.Event { return nil }

func (h *heldCall) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	opened := h.Call.Item()
	events, item, refusal = h.Call.Close(arguments)
	if refusal != "" || !h.requires(item) {
		if h.opened = opened; opened.IsZero() && refusal == "" {
			h.opened = h.Call.Item() // it is shown once it is complete
		}
		return events, item, refusal
	}
	h.waits = true
	h.opened = berth.NewItem(berth.ApprovalRequest{ID: berth.NewID(berth.PrefixApproval),
		Type:      berth.ItemApprovalRequest,
		Arguments: arguments, Name: h.name, ServerLabel: h.label})
	return nil, h.opened, ""
}

// hold returns a call of a hosted tool as one that may wait for approval, if the tool or the
// request requires approvals.
func (g *guard) hold(c tool.Call, t *boundTool) tool.Call {
	if a, ok := t.Tool.(tool.Approver); ok {
		label, name, needed := a.Approval()
		if !needed {
			return c
		}
		return &heldCall{Call: c, label: label, name: name, requires: func(berth.Item) bool { return true }}
	}
	policy, commands, asks := g.rails.RequireApproval, t.kind.Calls.Commands, t.kind.Calls.Asks
	if (policy == nil || commands == nil) && asks == nil {
		return c
	}
	return &heldCall{Call: c, label: tool.ApprovalLabel, name: t.Spec().Function.Name,
		requires: func(closed berth.Item) bool {
			// An invalid call needs no approval: its output is the error.
			return closed.Status() == berth.StatusCompleted && (asks != nil && asks(closed) || commands != nil &&
				slices.ContainsFunc(commands(closed), policy.Requires))
		}}
}

// checkApprovals refuses an approval response without a request, a second response to one
// request, and the approval of a call whose tool is not offered.
func checkApprovals(kinds *tool.Registry, chain, input []berth.Item, tools toolset) error {
	if !slices.ContainsFunc(input, isApprovalResponse) {
		return nil
	}
	all := transcript.ApprovalsOf(kinds, slices.Concat(chain, input))
	answered := transcript.ApprovalsOf(kinds, chain).Responses
	for _, it := range input {
		var answer berth.ApprovalResponse
		if !isApprovalResponse(it) || it.Decode(&answer) != nil {
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
		if answer.Approve && !all.Made[id] {
			if err := tools.checkApproved(request); err != nil {
				return err
			}
		}
	}
	return nil
}

// addAnswers adds who answers the approval requests of the chain to a response.
func (a *admission) addAnswers(body *berth.Response) {
	var answers []berth.ApprovalAnswer
	for _, it := range a.run.transcript.Input {
		var answer berth.ApprovalResponse
		if isApprovalResponse(it) && it.Decode(&answer) == nil {
			answers = append(answers, berth.ApprovalAnswer{ApprovalRequestID: answer.ApprovalRequestID,
				Approve: answer.Approve, KeyID: a.caller.Key, Person: a.caller.Person})
		}
	}
	if len(answers) == 0 {
		return
	}
	if body.Berth == nil {
		body.Berth = &berth.ResponseBerth{}
	}
	body.Berth.Approvals = answers
}

// checkApproved refuses the approval of a call whose tool is not offered.
func (s *toolset) checkApproved(request berth.ApprovalRequest) error {
	if s.hosted(tool.ApprovalFunction(request)) != nil || slices.ContainsFunc(s.sources, func(b *boundSource) bool {
		return b.Label() == request.ServerLabel
	}) {
		return nil
	}
	if request.ServerLabel == tool.ApprovalLabel {
		return berth.Invalid("tools",
			"Approval request '%s' is for a call that runs in a container. Add a tool of type '%s' with a container to 'tools'.",
			request.ID, request.Name)
	}
	return berth.Invalid("tools",
		"Approval request '%s' is for a tool of the server '%s'. Add the tool with this server_label to 'tools'.",
		request.ID, request.ServerLabel)
}

// newlyApproved returns the requests among items that a response in the input approves of
// and whose call was not made yet.
func (g *guard) newlyApproved(items, input []berth.Item) []berth.ApprovalRequest {
	if !slices.ContainsFunc(input, isApprovalResponse) {
		return nil
	}
	all := transcript.ApprovalsOf(g.kinds, items)
	var approved []berth.ApprovalRequest
	for _, it := range input {
		var answer berth.ApprovalResponse
		if isApprovalResponse(it) && it.Decode(&answer) == nil && answer.Approve &&
			!all.Made[answer.ApprovalRequestID] {
			approved = append(approved, all.Requests[answer.ApprovalRequestID])
		}
	}
	return approved
}

func isApprovalResponse(it berth.Item) bool { return it.Type() == berth.ItemApprovalResponse }

// needsApproval reports whether an item waits for the client's approval.
func needsApproval(it berth.Item) bool { return it.Type() == berth.ItemApprovalRequest }

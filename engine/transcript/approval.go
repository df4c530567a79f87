package transcript

import (
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// Approvals are the approval requests among items, with the client's responses.
type Approvals struct {
	Requests  map[string]berth.ApprovalRequest
	Responses map[string]berth.ApprovalResponse // by the request's id
	Made      map[string]bool                   // requests whose call was made
}

// ApprovalsOf returns the approvals among items.
func ApprovalsOf(tools *tool.Registry, items []berth.Item) Approvals {
	a := Approvals{map[string]berth.ApprovalRequest{}, map[string]berth.ApprovalResponse{}, map[string]bool{}}
	for _, it := range items {
		switch it.Type() {
		case berth.ItemApprovalRequest:
			var r berth.ApprovalRequest
			if it.Decode(&r) == nil {
				a.Requests[r.ID] = r
			}
		case berth.ItemApprovalResponse:
			var r berth.ApprovalResponse
			if it.Decode(&r) == nil {
				a.Responses[r.ApprovalRequestID] = r
			}
		default:
			if id := tools.MarkOf(it).ApprovalRequestID; id != "" {
				a.Made[id] = true
			}
		}
	}
	return a
}

// settled removes approval requests whose call was made, and all approval responses. It
// replaces other requests by a call whose output explains why it was not run.
func settled(tools *tool.Registry, items []berth.Item) []berth.Item {
	if !slices.ContainsFunc(items, func(it berth.Item) bool {
		return it.Type() == berth.ItemApprovalRequest || it.Type() == berth.ItemApprovalResponse
	}) {
		return items
	}
	all := ApprovalsOf(tools, items)
	out := make([]berth.Item, 0, len(items))
	for _, it := range items {
		request, isRequest := all.Requests[it.ID()]
		switch {
		case it.Type() == berth.ItemApprovalResponse:
			continue
		case !isRequest:
			out = append(out, it)
			continue
		case all.Made[request.ID]:
			continue
		}
		words := "This call waits for approval and was not run."
		if answer, ok := all.Responses[request.ID]; ok && answer.Approve {
			words = "This call was approved, but not run."
		} else if ok {
			words = "The user did not approve of this call. It was not run. " + answer.Reason
		}
		callID := berth.PrefixCall + request.ID
		out = append(out,
			berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, Status: berth.StatusCompleted,
				CallID: callID, Name: tool.ApprovalFunction(request), Arguments: request.Arguments}),
			berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, Status: berth.StatusCompleted,
				CallID: callID, Output: berth.StringDelta(words)}))
	}
	return out
}

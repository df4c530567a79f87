package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/internal/rule"
)

// callApprovals serves the calls of clients that wait for a person.
type callApprovals struct{ service *approvals.Service }

// approvalBody checks the body of POST /v1/approvals/{approval}.
var approvalBody = rule.Object(rule.Fields{"approve": rule.Boolean,
	"reason": rule.Text(0, approvals.MaxReason)}, "approve")

// An approvalAnswer is the body of POST /v1/approvals/{approval}.
type approvalAnswer struct {
	Approve bool   `json:"approve"`
	Reason  string `json:"reason"` // which the client reads
}

// approvalID returns the id of the request's path.
func approvalID(r *http.Request) berth.ApprovalID { return berth.ApprovalID(r.PathValue("approval")) }

// list serves GET /v1/approvals, the newest first.
func (h *callApprovals) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.service.List, func(a *approvals.Approval) string { return string(a.ID) })
}

// get serves GET /v1/approvals/{approval}.
func (h *callApprovals) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, approvalID(r))
}

// answer serves POST /v1/approvals/{approval}.
func (h *callApprovals) answer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body approvalAnswer
	if err := x.Decode(r, approvalBody, &body); err != nil {
		return err
	}
	a, err := h.service.Answer(r.Context(), c, approvalID(r), body.Approve, body.Reason)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, a)
}

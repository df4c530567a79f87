package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// A nextForm is the data of the forms that continue a response.
type nextForm struct {
	*berth.Response
	Form   formToken
	Models []string
	Back   string // where the forms lead to: "runs" for the list with the run beside it, or "" for the run's page
}

// Approval returns the calls of the response that wait for an approval; nil if there are none.
func (n nextForm) Approval() *waitingRun {
	calls := approvalsOf(n.Response)
	if len(calls) == 0 {
		return nil
	}
	s := &summary{}
	s.ID, s.CreatedAt = n.ID, n.CreatedAt
	return &waitingRun{s, "", n.Form, n.Back, calls}
}

// modelsOf returns the names of the models that requests may use.
func modelsOf(v *visit) ([]string, error) {
	var found list[berth.Model]
	if err := v.get("/v1/models", &found); err != nil {
		return nil, err
	}
	var names []string
	for _, m := range found.Data {
		if m.Berth == nil || m.Berth.Provider != "embedding" {
			names = append(names, m.ID)
		}
	}
	return names, nil
}

// baseURL returns the URL of the API for clients, as the browser reaches the server.
func baseURL(v *visit) string {
	scheme := "http"
	if overHTTPS(v.r) {
		scheme = "https"
	}
	return scheme + "://" + v.r.Host + "/v1"
}

// extend serves POST /console/responses/{response}/continue: it creates the next
// response of the chain, with the same settings.
func (*responsePage) extend(v *visit) error {
	text := strings.TrimSpace(v.text("text"))
	if text == "" {
		return &failure{Status: http.StatusBadRequest, Message: "The message is empty. Go back and write one."}
	}
	return continueResponse(v, v.form.fields.Get("model"), text, "")
}

// An approvalAnswer answers an approval request.
type approvalAnswer struct {
	Type    berth.ItemType `json:"type"`
	ID      string         `json:"approval_request_id"`
	Approve bool           `json:"approve"`
	Reason  string         `json:"reason,omitempty"`
}

// answersOf returns the answers of a form: one for all calls, or one for each. Nil means that an answer is missing.
func answersOf(fields url.Values) (answers []approvalAnswer) {
	all := fields.Get("all")
	for _, id := range fields["call"] {
		value := all
		if fields.Get("each") != "" {
			value = fields.Get(id)
		}
		if !strings.HasPrefix(id, berth.PrefixApproval) || value != "approve" && value != "deny" {
			return nil
		}
		a := approvalAnswer{Type: berth.ItemApprovalResponse, ID: id, Approve: value == "approve"}
		if !a.Approve {
			a.Reason = strings.TrimSpace(fields.Get("reason"))
		}
		answers = append(answers, a)
	}
	slices.SortFunc(answers, func(a, b approvalAnswer) int { return strings.Compare(a.ID, b.ID) })
	return answers
}

// answer serves POST /console/responses/{response}/approvals: it answers all calls that
// wait, because a call without an answer does not run.
func (*responsePage) answer(v *visit) error {
	answers := answersOf(v.form.fields)
	if len(answers) == 0 {
		return &failure{Status: http.StatusBadRequest,
			Message: "The form has no answer. Go back and approve or deny each call."}
	}
	return continueResponse(v, "", answers, "console-approvals-"+v.r.PathValue("response"))
}

// continueResponse creates the response that continues the one of the path, and shows it. If once is not
// empty, it does so once: later, it shows the same response.
func continueResponse(v *visit, model string, input any, once string) error {
	req := map[string]any{"previous_response_id": v.r.PathValue("response"), "input": input, "background": true,
		"berth": map[string]any{"inherit": true}}
	if model != "" {
		req["model"] = model
	}
	v.once = once
	return createResponse(v, req)
}

// createResponse creates a response and shows it.
func createResponse(v *visit, req map[string]any) error {
	var created struct{ ID berth.ResponseID }
	if err := v.post("/v1/responses", req, &created); err != nil {
		return err
	}
	id := url.PathEscape(string(created.ID))
	switch v.form.fields.Get("back") {
	case "home":
		return v.redirect(Path)
	case "runs":
		return v.redirect("/console/responses?open=" + id)
	}
	return v.redirect("/console/responses/" + id + "#latest")
}

package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// A nextForm is the data of the forms that continue a response.
type nextForm struct {
	*berth.Response
	Form   string
	Models []string
}

// An approval is a call that waits for an approval.
type approval struct {
	ID, Name, Server string
	Text             string // its commands, or its arguments in JSON
}

// Waiting returns the calls of the response that wait for an approval.
func (n nextForm) Waiting() (waiting []approval) {
	for _, it := range n.Output {
		var asked berth.ApprovalRequest
		if it.Type() != berth.ItemApprovalRequest || it.Decode(&asked) != nil {
			continue
		}
		a := approval{ID: asked.ID, Name: asked.Name, Server: asked.ServerLabel, Text: asked.Arguments}
		var shell struct{ Commands []string }
		if json.Unmarshal([]byte(asked.Arguments), &shell) == nil && len(shell.Commands) > 0 {
			a.Text = strings.Join(shell.Commands, "\n")
		}
		waiting = append(waiting, a)
	}
	return waiting
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

// extend serves POST /console/responses/{response}/continue: it creates the next
// response of the chain, with the same settings.
func (*responsePage) extend(v *visit) error {
	text := strings.TrimSpace(v.text("text"))
	if text == "" {
		return &failure{Status: http.StatusBadRequest, Message: "The message is empty. Go back and write one."}
	}
	return continueResponse(v, v.form.fields.Get("model"), text, "")
}

// answer serves POST /console/responses/{response}/approvals: it answers all calls that
// wait, because a call without an answer does not run.
func (*responsePage) answer(v *visit) error {
	type answer struct {
		Type    berth.ItemType `json:"type"`
		ID      string         `json:"approval_request_id"`
		Approve bool           `json:"approve"`
		Reason  string         `json:"reason,omitempty"`
	}
	var answers []answer
	for name, values := range v.form.fields {
		if id, ok := strings.CutPrefix(name, berth.PrefixApproval); ok && id != "" {
			a := answer{Type: berth.ItemApprovalResponse, ID: name, Approve: values[0] == "approve"}
			if !a.Approve {
				a.Reason = strings.TrimSpace(v.form.fields.Get("reason-" + name))
			}
			answers = append(answers, a)
		}
	}
	slices.SortFunc(answers, func(a, b answer) int { return strings.Compare(a.ID, b.ID) })
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
	return v.redirect("/console/responses/" + url.PathEscape(string(created.ID)))
}

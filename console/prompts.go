package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
)

// A promptsPage is the list of prompts.
type promptsPage struct {
	rows[berth.Prompt]
	Draft promptDraft
}

// A promptDraft is what the user has entered into the form of a prompt.
type promptDraft struct {
	Name     string
	Template string // JSON
	Error    string
}

// firstTemplate returns the template with which the form of a new prompt starts.
func firstTemplate(models []string) string {
	raw, err := json.Marshal(map[string]any{"model": firstModel(models),
		"instructions": "You review {{language}} code."})
	if err != nil {
		return "{}"
	}
	return string(jsonscan.Indent(raw))
}

// show serves GET /console/prompts.
func (p *promptsPage) show(v *visit) error { return p.answer(v, http.StatusOK, promptDraft{}) }

// answer shows the list with a draft.
func (p *promptsPage) answer(v *visit, status int, draft promptDraft) error {
	text := textIn(func(p berth.Prompt) []string { return append([]string{p.Name, string(p.ID)}, p.Variables...) })
	if err := p.find(v, "/v1/prompts", text); err != nil {
		return err
	}
	if p.Draft = draft; draft.Template == "" {
		models, err := modelsOf(v)
		if err != nil {
			return err
		}
		p.Draft.Template = firstTemplate(models)
	}
	return v.show(status, "prompts", "Prompts", p)
}

// create serves POST /console/prompts.
func (p *promptsPage) create(v *visit) error {
	draft := draftOf(v)
	var made berth.Prompt
	if err := draft.send(v, "/v1/prompts", &made); err != nil || draft.Error != "" {
		if err != nil {
			return err
		}
		return p.answer(v, http.StatusBadRequest, draft)
	}
	return v.redirect(pathTo("/console/prompts", made.ID))
}

// draftOf returns the draft of a form.
func draftOf(v *visit) promptDraft {
	return promptDraft{Name: strings.TrimSpace(v.form.fields.Get("name")), Template: v.text("template")}
}

// send stores the draft with a route of the API. What is wrong with it is in its Error.
func (d *promptDraft) send(v *visit, to string, made *berth.Prompt) error {
	if !json.Valid([]byte(d.Template)) {
		d.Error = "The template is not JSON."
		return nil
	}
	err := v.post(to, map[string]any{"name": d.Name, "template": json.RawMessage(d.Template)}, made)
	if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusBadRequest {
		d.Error, err = f.Message, nil
	}
	return err
}

// A promptPage is the page of a version of a prompt.
type promptPage struct {
	berth.Prompt
	Versions []berth.Prompt // the newest first
	Form     formToken
	Draft    promptDraft
	Codes    []codeView // a request with the prompt
}

// Newest reports whether the page shows the version that requests use.
func (p promptPage) Newest() bool { return len(p.Versions) == 0 || p.Versions[0].Version == p.Version }

// Path returns the path of the page of the prompt.
func (p promptPage) Path() string { return pathTo("/console/prompts", p.ID) }

// show serves GET /console/prompts/{prompt}.
func (p *promptPage) show(v *visit) error { return p.answer(v, http.StatusOK, promptDraft{}) }

// answer shows the prompt, with a draft of its next version.
func (p *promptPage) answer(v *visit, status int, draft promptDraft) error {
	from := pathTo("/v1/prompts", v.r.PathValue("prompt"))
	query := ""
	if version := v.r.URL.Query().Get("version"); version != "" {
		query = "?" + url.Values{"version": {version}}.Encode()
	}
	if err := v.get(from+query, &p.Prompt); err != nil {
		return err
	}
	var versions list[berth.Prompt]
	if err := v.get(from+"/versions?order=desc&limit=100", &versions); err != nil {
		return err
	}
	p.Versions, p.Form, p.Draft = versions.Data, v.formToken(), draft
	if draft.Error == "" {
		p.Draft = promptDraft{Name: p.Name, Template: string(jsonscan.Indent(p.Template))}
	}
	var err error
	if p.Codes, err = codeOf(p.request(), baseURL(v)); err != nil {
		return err
	}
	return v.show(status, "prompt", p.Name, p)
}

// request returns a request with the prompt.
func (p promptPage) request() map[string]any {
	of := map[string]any{"id": p.ID}
	if !p.Newest() {
		of["version"] = p.Version
	}
	if len(p.Variables) > 0 {
		variables := map[string]any{}
		for _, name := range p.Variables {
			variables[name] = "…"
		}
		of["variables"] = variables
	}
	return map[string]any{"prompt": of, "input": "…"}
}

// change serves POST /console/prompts/{prompt}: it stores the next version, runs the prompt, or deletes it, as the
// form says.
func (p *promptPage) change(v *visit) error {
	id := v.r.PathValue("prompt")
	to := pathTo("/v1/prompts", id)
	switch v.form.fields.Get("do") {
	case "save":
		draft := draftOf(v)
		if err := draft.send(v, to, &berth.Prompt{}); err != nil {
			return err
		}
		if draft.Error != "" {
			return p.answer(v, http.StatusBadRequest, draft)
		}
		return v.redirect(pathTo("/console/prompts", id))
	case "run":
		return runPrompt(v, id)
	case "delete":
		if err := v.delete(to); err != nil {
			return err
		}
		return v.redirect("/console/prompts")
	}
	return &failure{http.StatusBadRequest, "The form is incomplete."}
}

// runPrompt creates a response with a prompt, and the variables and the input of the form.
func runPrompt(v *visit, id string) error {
	of := map[string]any{"id": id, "version": v.form.fields.Get("version")}
	variables := map[string]string{}
	for name := range v.form.fields {
		if variable, ok := strings.CutPrefix(name, "var:"); ok {
			variables[variable] = v.text(name)
		}
	}
	if len(variables) > 0 {
		of["variables"] = variables
	}
	return createResponse(v, map[string]any{"prompt": of, "input": v.text("input"), "background": true})
}

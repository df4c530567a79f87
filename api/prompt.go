package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/prompts"
)

// storedPrompts serves prompts and expands the requests that refer to one.
type storedPrompts struct {
	rules *request.Rules
	store *prompts.Store
}

// promptBody returns the rule for a prompt.
func (h *storedPrompts) promptBody(required ...string) rule.Rule {
	return rule.Object(rule.Fields{"name": rule.Text(1, 256), "template": h.rules.Template, "metadata": rule.Metadata},
		required...)
}

func promptID(r *http.Request) berth.PromptID { return berth.PromptID(r.PathValue("prompt")) }

// create serves POST /v1/prompts.
func (h *storedPrompts) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var p berth.Prompt
	if err := x.Decode(r, h.promptBody("name", "template"), &p); err != nil {
		return err
	}
	p.ID, p.Object, p.CreatedAt, p.Version = berth.PromptID(berth.NewID(berth.PrefixPrompt)), "prompt",
		time.Now().Unix(), "1"
	if p.Metadata == nil {
		p.Metadata = map[string]string{}
	}
	var err error
	if p.Variables, err = h.rules.Variables(p.Template); err != nil {
		return err
	}
	if err := h.store.Create(r.Context(), c.Project, &p); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, &p)
}

// update serves POST /v1/prompts/{prompt}. A new template creates a new version.
func (h *storedPrompts) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body promptChange
	if err := x.Decode(r, h.promptBody(), &body); err != nil {
		return err
	}
	change := prompts.Change{Name: body.Name, Metadata: body.Metadata}
	variables, err := h.rules.Variables(body.Template)
	if err != nil {
		return err
	}
	if body.Template != nil && !request.IsNull(body.Template) {
		change.Template, change.Variables = body.Template, variables
	}
	p, err := h.store.Update(r.Context(), c.Project, promptID(r), change)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, p)
}

// A promptChange is the body of a request to change a prompt.
type promptChange struct {
	Name     string
	Template json.RawMessage
	Metadata map[string]string
}

// get serves GET /v1/prompts/{prompt}. The query may select a version.
func (h *storedPrompts) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	version := q.Text("version")
	if err := q.End(); err != nil {
		return err
	}
	p, err := h.store.Find(r.Context(), c.Project, promptID(r), version)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, p)
}

// list serves GET /v1/prompts.
func (h *storedPrompts) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.store.List, func(p *berth.Prompt) string { return string(p.ID) })
}

// listVersions serves GET /v1/prompts/{prompt}/versions. The cursor is a
// version's number.
func (h *storedPrompts) listVersions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	versions, err := h.store.Versions(r.Context(), c.Project, promptID(r))
	if err != nil {
		return err
	}
	version := func(p *berth.Prompt) string { return p.Version }
	list, more, err := exchange.PageOf(versions, page, version)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.ListOf(list, more, version))
}

// delete serves DELETE /v1/prompts/{prompt}. It does not change responses that used the
// prompt.
func (h *storedPrompts) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.store.Delete, promptID(r), "prompt")
}

// apply merges the prompt that a request refers to, if any, into the request. Fields of
// the request win over those of the prompt. The prompt's messages precede the input.
func (h *storedPrompts) apply(ctx context.Context, project berth.ProjectID, req *berth.ResponseRequest) error {
	if req.Prompt != nil {
		version := ""
		if req.Prompt.Version != nil {
			version = *req.Prompt.Version
		}
		p, err := h.store.Find(ctx, project, req.Prompt.ID, version)
		if err != nil {
			return err
		}
		if err := h.rules.Merge(req, p); err != nil {
			return err
		}
	}
	if req.Model == "" {
		return rule.Missing("model")
	}
	return nil
}

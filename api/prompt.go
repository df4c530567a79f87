package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// prompts serves prompts and expands the requests that refer to one.
type prompts struct {
	rules   *request.Rules
	objects store.Objects
}

// The kinds of stored objects. The parent of a version is its prompt, and its id is the
// number of the version.
const (
	kindPrompt        = store.KindPrompt
	kindPromptVersion = store.KindPromptVersion
)

// promptBody returns the rule for a prompt.
func (h *prompts) promptBody(required ...string) rule.Rule {
	return rule.Object(rule.Fields{"name": rule.Text(1, 256), "template": h.rules.Template, "metadata": rule.Metadata},
		required...)
}

// create serves POST /v1/prompts.
func (h *prompts) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
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
	body, err := json.Marshal(&p)
	if err != nil {
		return err
	}
	if err := h.objects.CreateObjects(r.Context(), c.Project, &store.Object{ObjectKey: promptKey(p.ID),
		CreatedAt: p.CreatedAt, Body: body}); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, &p)
}

// update serves POST /v1/prompts/{prompt}. A new template creates a new version.
func (h *prompts) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var change promptChange
	if err := x.Decode(r, h.promptBody(), &change); err != nil {
		return err
	}
	var err error
	if change.variables, err = h.rules.Variables(change.Template); err != nil {
		return err
	}
	id := berth.PromptID(r.PathValue("prompt"))
	for {
		o, err := h.objects.GetObject(r.Context(), c.Project, promptKey(id))
		if err != nil {
			return promptError(string(id), err)
		}
		p, err := h.change(r.Context(), c.Project, o, &change)
		if errors.Is(err, errOvertaken) {
			continue
		}
		if err != nil {
			return promptError(string(id), err)
		}
		return x.JSON(http.StatusOK, p)
	}
}

type promptChange struct {
	Name     string
	Template json.RawMessage
	Metadata map[string]string

	variables []string
}

// errOvertaken means that another request has changed the prompt first.
var errOvertaken = errors.New("another request has changed the prompt")

// change stores the current version as an old one, then replaces it. It returns
// errOvertaken if the prompt is no longer the same as old.
func (h *prompts) change(ctx context.Context, project berth.ProjectID, old *store.Object,
	change *promptChange) (*berth.Prompt, error) {
	var p berth.Prompt
	if err := json.Unmarshal(old.Body, &p); err != nil {
		return nil, fmt.Errorf("decode prompt: %w", err)
	}
	if change.Name != "" {
		p.Name = change.Name
	}
	if change.Metadata != nil {
		p.Metadata = change.Metadata
	}
	if change.Template != nil && !request.IsNull(change.Template) {
		kept := &store.Object{ObjectKey: versionKey(p.ID, p.Version), CreatedAt: old.CreatedAt, Body: old.Body}
		if err := h.objects.CreateObjects(ctx, project, kept); err != nil && !errors.Is(err, store.ErrExists) {
			return nil, err
		}
		n, err := strconv.Atoi(p.Version)
		if err != nil {
			return nil, fmt.Errorf("version: %w", err)
		}
		p.Version, p.Template, p.Variables = strconv.Itoa(n+1), change.Template, change.variables
	}
	body, err := json.Marshal(&p)
	if err != nil {
		return nil, err
	}
	_, err = h.objects.UpdateObject(ctx, project, old.ObjectKey, func(o *store.Object) error {
		if !bytes.Equal(o.Body, old.Body) {
			return errOvertaken
		}
		o.Body = body
		return nil
	})
	return &p, err
}

// get serves GET /v1/prompts/{prompt}. The query may select a version.
func (h *prompts) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	version := q.Text("version")
	if err := q.End(); err != nil {
		return err
	}
	body, err := h.find(r.Context(), c.Project, berth.PromptID(r.PathValue("prompt")), version)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, body)
}

// list serves GET /v1/prompts.
func (h *prompts) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := h.objects.ListObjects(r.Context(), c.Project, kindPrompt, "", page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.Documents(list, more, documentOf))
}

// listVersions serves GET /v1/prompts/{prompt}/versions. The cursor is a
// version's number.
func (h *prompts) listVersions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	id := r.PathValue("prompt")
	newest, err := h.objects.GetObject(r.Context(), c.Project, promptKey(berth.PromptID(id)))
	if err != nil {
		return promptError(id, err)
	}
	versions, _, err := h.objects.ListObjects(r.Context(), c.Project, kindPromptVersion, id,
		store.Page{Limit: maxVersions, Ascending: true})
	if err != nil {
		return err
	}
	var p berth.Prompt
	if err := json.Unmarshal(newest.Body, &p); err != nil {
		return fmt.Errorf("decode prompt: %w", err)
	}
	newest.ID = p.Version
	// left by an interrupted change
	versions = slices.DeleteFunc(versions, func(o *store.Object) bool { return o.ID == p.Version })
	list, more, err := exchange.PageOf(append(versions, newest), page, func(o *store.Object) string { return o.ID })
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Documents(list, more, documentOf))
}

// maxVersions is the maximum number of versions in a list.
const maxVersions = 10_000

// delete serves DELETE /v1/prompts/{prompt}. It does not change responses that used the
// prompt.
func (h *prompts) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := berth.PromptID(r.PathValue("prompt"))
	if err := h.objects.DeleteObject(r.Context(), c.Project, promptKey(id)); err != nil {
		return promptError(string(id), err)
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "prompt"))
}

// find returns a version of a prompt. An empty version means the newest.
func (h *prompts) find(ctx context.Context, project berth.ProjectID, id berth.PromptID, version string) (*berth.Prompt,
	error) {
	var p berth.Prompt
	o, err := h.objects.GetObject(ctx, project, promptKey(id))
	if err == nil {
		err = json.Unmarshal(o.Body, &p)
	}
	if err != nil || version == "" || version == p.Version {
		return &p, promptError(string(id), err)
	}
	o, err = h.objects.GetObject(ctx, project, versionKey(id, version))
	if errors.Is(err, store.ErrNotFound) {
		return nil, &berth.Error{Code: berth.CodeNotFound, Wire: "prompt_not_found",
			Message: fmt.Sprintf("Prompt with id '%s' has no version '%s'.", rule.Clip(string(id)), rule.Clip(version))}
	}
	if err != nil {
		return nil, err
	}
	p = berth.Prompt{}
	if err := json.Unmarshal(o.Body, &p); err != nil {
		return nil, fmt.Errorf("decode version: %w", err)
	}
	return &p, nil
}

func promptKey(id berth.PromptID) store.ObjectKey {
	return store.ObjectKey{Kind: kindPrompt, ID: string(id)}
}

func versionKey(id berth.PromptID, version string) store.ObjectKey {
	return store.ObjectKey{Kind: kindPromptVersion, Parent: string(id), ID: version}
}

func promptError(id string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &berth.Error{Code: berth.CodeNotFound, Wire: "prompt_not_found", Message: "Prompt with id '" +
			rule.Clip(id) + "' not found."}
	}
	return err
}

// apply merges the prompt that a request refers to, if any, into the request. Fields of
// the request win over those of the prompt. The prompt's messages precede the input.
func (h *prompts) apply(ctx context.Context, project berth.ProjectID, req *berth.ResponseRequest) error {
	if req.Prompt != nil {
		version := ""
		if req.Prompt.Version != nil {
			version = *req.Prompt.Version
		}
		p, err := h.find(ctx, project, req.Prompt.ID, version)
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

func documentOf(o *store.Object) (id string, body json.RawMessage) { return o.ID, o.Body }

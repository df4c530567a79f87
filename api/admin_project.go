package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

// known returns the project of the path. A project without a record exists while it has a key.
func (h *admin) known(ctx context.Context, r *http.Request) (*berth.Project, error) {
	all, err := h.service.ListAll(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if string(p.ID) == r.PathValue("project") {
			return p.Project, nil
		}
	}
	return nil, berth.NotFound("Project", rule.Clip(r.PathValue("project")))
}

// createProject serves POST /v1/organization/projects.
func (h *admin) createProject(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body projectRequest
	if err := x.Decode(r, createProjectBody, &body); err != nil {
		return err
	}
	service := h.service.By(c)
	p, err := service.Create(r.Context(), berth.ProjectID(berth.NewID(berth.PrefixProject)), body.Name)
	if err == nil && body.Limits != nil {
		p, err = service.ReplaceLimits(r.Context(), p.ID, *body.Limits)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, p)
}

// listProjects serves GET /v1/organization/projects, the oldest first by default. Projects
// without a record, which only have keys, follow the others.
func (h *admin) listProjects(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	q := exchange.NewQuery(r)
	archived := q.Boolean("include_archived", false)
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return err
	}
	summaries, err := h.service.ListAll(r.Context())
	if err != nil {
		return err
	}
	var all []*berth.Project
	for _, s := range summaries {
		all = append(all, s.Project)
	}
	if !archived {
		all = slices.DeleteFunc(all, func(p *berth.Project) bool { return p.Status == berth.ProjectArchived })
	}
	id := func(p *berth.Project) string { return string(p.ID) }
	data, more, err := exchange.PageOf(all, page, id)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, id))
}

// getProject serves GET /v1/organization/projects/{project}.
func (h *admin) getProject(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	p, err := h.known(r.Context(), r)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, p)
}

// updateProject serves POST /v1/organization/projects/{project}.
func (h *admin) updateProject(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body projectRequest
	if err := x.Decode(r, updateProjectBody, &body); err != nil {
		return err
	}
	p, err := h.known(r.Context(), r)
	service := h.service.By(c)
	if err == nil && body.Name != "" {
		p, err = service.Rename(r.Context(), p.ID, body.Name)
	}
	if err == nil && body.Limits != nil {
		p, err = service.ReplaceLimits(r.Context(), p.ID, *body.Limits)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, p)
}

// archiveProject serves POST /v1/organization/projects/{project}/archive. An archived project's
// data is erased; that cannot be undone.
func (h *admin) archiveProject(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	p, err := h.known(r.Context(), r)
	if err == nil {
		p, err = h.service.By(c).Archive(r.Context(), p.ID)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, p)
}

// createKey serves POST /v1/organization/projects/{project}/api_keys.
func (h *admin) createKey(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	p, err := h.known(r.Context(), r)
	if err != nil {
		return err
	}
	k, secret, err := h.create(x, r, c, p.ID, createKeyBody)
	if err != nil {
		return err
	}
	answer := projectKeyOf(k)
	answer.Value = secret
	return x.JSON(http.StatusOK, answer)
}

// listKeys serves GET /v1/organization/projects/{project}/api_keys.
func (h *admin) listKeys(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	keys, more, err := h.list(r, berth.ProjectID(r.PathValue("project"))) // before the project, to check the query
	if err == nil {
		_, err = h.known(r.Context(), r)
	}
	if err != nil {
		return err
	}
	data := make([]*projectKey, len(keys))
	for i, k := range keys {
		data[i] = projectKeyOf(k)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(k *projectKey) string { return string(k.ID) }))
}

// getKey serves GET /v1/organization/projects/{project}/api_keys/{key}.
func (h *admin) getKey(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	p, err := h.known(r.Context(), r)
	if err != nil {
		return err
	}
	k, err := h.find(r, p.ID)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, projectKeyOf(k))
}

// updateKey serves POST /v1/organization/projects/{project}/api_keys/{key}.
func (h *admin) updateKey(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	p, err := h.known(r.Context(), r)
	if err != nil {
		return err
	}
	k, err := h.update(x, r, c, p.ID, updateKeyBody)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, projectKeyOf(k))
}

// deleteKey serves DELETE /v1/organization/projects/{project}/api_keys/{key}.
func (h *admin) deleteKey(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	p, err := h.known(r.Context(), r)
	if err != nil {
		return err
	}
	id, err := h.revoke(r, c, p.ID)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "organization.project.api_key.deleted"))
}

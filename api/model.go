package api

import (
	"context"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

// ModelOptions configure the listing of models, upstreams and costs.
type ModelOptions struct {
	Models    Models
	Upstreams func() []berth.Upstream // nil shows no upstreams
	Currency  string                  // of costs; default usd
	Priced    func() bool             // whether any model has a price; default yes
}

// Models lists the models that requests may use; *model.Router implements it.
type Models interface {
	Models(ctx context.Context) ([]berth.Model, error)
	// Model returns a model, even an unlisted one. Its errors for clients are *berth.Error.
	Model(ctx context.Context, name string) (berth.Model, error)
}

// models serves the models that requests may use, and their upstreams.
type models struct {
	all      Models
	statuses func() []berth.Upstream // may be nil
}

// list serves GET /v1/models.
func (h *models) list(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	q := exchange.NewQuery(r)
	q.Text("client_version") // sent by codex; the list is the same for every version
	if err := q.End(); err != nil {
		return err
	}
	models, err := h.all.Models(r.Context())
	if err != nil {
		return err
	}
	if models == nil {
		models = []berth.Model{}
	}
	return x.JSON(http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []berth.Model `json:"data"`
	}{"list", models})
}

// get serves GET /v1/models/{model...}. The name of a model may contain slashes.
func (h *models) get(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	m, err := h.find(r)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, m)
}

// delete serves DELETE /v1/models/{model...}. At OpenAI, it deletes fine-tuned models.
// Berth has none, so it refuses to delete any model, as OpenAI does for its own models.
func (h *models) delete(_ *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	if _, err := h.find(r); err != nil {
		return err
	}
	return berth.Errorf(berth.CodeForbidden,
		"You have insufficient permissions for this operation. Only fine-tuned models can be deleted, and this server has none.")
}

// find returns the model of the request's path. The model need not be listed: a rule may
// route any name.
func (h *models) find(r *http.Request) (berth.Model, error) {
	id := r.PathValue("model")
	m, err := h.all.Model(r.Context(), id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return m, &berth.Error{Code: berth.CodeNotFound, Param: "model", Wire: "model_not_found",
			Message: "The model '" + rule.Clip(id) + "' does not exist."}
	}
	return m, err
}

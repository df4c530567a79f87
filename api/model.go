package api

import (
	"net/http"
	"slices"

	"github.com/berth-run/berth"
)

// listModels serves GET /v1/models.
func (s *server) listModels(w http.ResponseWriter, r *http.Request, _ berth.Caller) error {
	models, err := s.Models.Models(r.Context())
	if err != nil {
		return err
	}
	if models == nil {
		models = []berth.Model{}
	}
	return writeJSON(w, http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []berth.Model `json:"data"`
	}{"list", models})
}

// getModel serves GET /v1/models/{model...}; the name of a model may hold slashes.
func (s *server) getModel(w http.ResponseWriter, r *http.Request, _ berth.Caller) error {
	models, err := s.Models.Models(r.Context())
	if err != nil {
		return err
	}
	id := r.PathValue("model")
	n := slices.IndexFunc(models, func(m berth.Model) bool { return m.ID == id })
	if n < 0 {
		return &berth.Error{Code: berth.CodeNotFound, Param: "model", Wire: "model_not_found",
			Message: "The model '" + clip(id) + "' does not exist."}
	}
	return writeJSON(w, http.StatusOK, models[n])
}

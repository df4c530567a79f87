// Package assistants serves OpenAI's Assistants API with the threads and runs of package threads.
package assistants

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/threads"

	"github.com/berth-run/berth/api/exchange"
)

// assistantsBeta is the value of the header OpenAI-Beta that the Assistants API requires, as
// at OpenAI.
const assistantsBeta = "assistants=v2"

// A Door serves the Assistants API.
type Door struct{ service *threads.Service }

// NewDoor returns a door to a service.
func NewDoor(s *threads.Service) *Door { return &Door{s} }

// Beta returns a handler that requires the header of the Assistants API.
func Beta(h exchange.Handler) exchange.Handler {
	return func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		for _, value := range r.Header.Values("OpenAI-Beta") {
			if slices.ContainsFunc(strings.Split(value, ","), func(v string) bool {
				return strings.TrimSpace(v) == assistantsBeta
			}) {
				return h(x, r, c)
			}
		}
		return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_beta",
			Message: "You must provide the 'OpenAI-Beta' header to access the Assistants API. Please try again by setting the header 'OpenAI-Beta: " + assistantsBeta + "'."}
	}
}

// CreateAssistant serves POST /v1/assistants.
func (d *Door) CreateAssistant(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var a threads.Assistant
	if err := x.Decode(r, assistantRequest, &a); err != nil {
		return err
	}
	made, err := d.service.Catalog.Create(r.Context(), c.Project, &a)
	return answerJSON(x, made, err)
}

// ListAssistants serves GET /v1/assistants.
func (d *Door) ListAssistants(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := d.service.Catalog.List(r.Context(), c.Project, page)
	return answerList(x, list, more, page, err, func(a *threads.Assistant) string { return a.ID })
}

// ListThreads serves GET /v1/threads.
func (d *Door) ListThreads(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := d.service.Threads(r.Context(), c.Project, page)
	return answerList(x, list, more, page, err, func(t *threads.Thread) string { return t.ID })
}

// GetAssistant serves GET /v1/assistants/{assistant}.
func (d *Door) GetAssistant(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	a, err := d.service.Catalog.Get(r.Context(), c.Project, r.PathValue("assistant"))
	return answerJSON(x, a, err)
}

// UpdateAssistant serves POST /v1/assistants/{assistant}.
func (d *Door) UpdateAssistant(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := x.Decode(r, assistantUpdate, &request); err != nil {
		return err
	}
	a, err := d.service.Catalog.Update(r.Context(), c.Project, r.PathValue("assistant"), request)
	return answerJSON(x, a, err)
}

// DeleteAssistant serves DELETE /v1/assistants/{assistant}.
func (d *Door) DeleteAssistant(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("assistant")
	err := d.service.Catalog.Delete(r.Context(), c.Project, id)
	return answerJSON(x, exchange.Deleted(id, "assistant.deleted"), err)
}

// answerJSON answers with v, or returns err if it is not nil.
func answerJSON(x *exchange.Exchange, v any, err error) error {
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, v)
}

// answerList answers with a page of a list that supports after and before.
func answerList[T any](x *exchange.Exchange, list []T, more bool, page berth.Page, err error, id func(T) string) error {
	if errors.Is(err, berth.ErrNotFound) && page.After == "" && page.Before != "" {
		return berth.Invalid("before", "Invalid 'before': no object with id '%s' in this list.", rule.Clip(page.Before))
	}
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(list, more, id))
}

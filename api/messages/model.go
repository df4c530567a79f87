package messages

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

// version is the header that Anthropic's clients send with every request, and others do not.
const version = "anthropic-version"

// modelPath is the path of the list of models, which OpenAI's clients share.
const modelPath = "/v1/models"

// modelRoutes returns the routes of models for Anthropic's clients.
func (d *Door) modelRoutes() []exchange.Route {
	ours := func(r *http.Request) bool { return r.Method == http.MethodGet && r.Header.Get(version) != "" }
	list := exchange.On("GET "+modelPath, d.listModels, exchange.ReadsQuery, exchange.KeyInHeader)
	list.Select = func(r *http.Request) bool { return ours(r) && r.URL.Path == modelPath }
	get := exchange.On("GET "+modelPath+"/{model...}", d.getModel, exchange.ReadsQuery, exchange.KeyInHeader)
	get.Select = func(r *http.Request) bool { return ours(r) && strings.HasPrefix(r.URL.Path, modelPath+"/") }
	return []exchange.Route{list, get}
}

// A modelInfo describes a model in Anthropic's form.
type modelInfo struct {
	Type           string          `json:"type"` // "model"
	ID             string          `json:"id"`
	DisplayName    string          `json:"display_name"`
	CreatedAt      string          `json:"created_at"`
	MaxInputTokens *int            `json:"max_input_tokens"` // null: unknown
	MaxTokens      *int            `json:"max_tokens"`       // null: unknown
	Capabilities   json.RawMessage `json:"capabilities"`     // null: unknown
}

func newModelInfo(m berth.Model) modelInfo {
	info := modelInfo{Type: "model", ID: m.ID, DisplayName: m.ID,
		CreatedAt: time.Unix(m.Created, 0).UTC().Format(time.RFC3339)}
	if m.Berth != nil && m.Berth.ContextWindow > 0 {
		info.MaxInputTokens = &m.Berth.ContextWindow
	}
	return info
}

// listModels serves GET /v1/models.
func (d *Door) listModels(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	q := exchange.NewQuery(r)
	limit, after, before := int(q.Integer("limit", 20, 1, 1000)), q.Text("after_id"), q.Text("before_id")
	q.Text("beta") // sent by clients of beta features
	if err := q.End(); err != nil {
		return err
	}
	models, err := d.Models.Models(r.Context())
	if err != nil {
		return err
	}
	index := func(id string) (int, error) {
		i := slices.IndexFunc(models, func(m berth.Model) bool { return m.ID == id })
		if i < 0 {
			return 0, modelNotFound(id)
		}
		return i, nil
	}
	first, last := 0, len(models)
	if after != "" {
		i, err := index(after)
		if err != nil {
			return err
		}
		first = i + 1
	}
	if before != "" {
		if last, err = index(before); err != nil {
			return err
		}
		first = max(first, last-limit)
	}
	page := models[min(first, last):last]
	more := len(page) > limit || before != "" && first > 0
	page = page[:min(len(page), limit)]
	list := struct {
		Data    []modelInfo `json:"data"`
		HasMore bool        `json:"has_more"`
		FirstID *string     `json:"first_id"`
		LastID  *string     `json:"last_id"`
	}{Data: []modelInfo{}, HasMore: more}
	for i := range page {
		list.Data = append(list.Data, newModelInfo(page[i]))
	}
	if n := len(page); n > 0 {
		list.FirstID, list.LastID = &page[0].ID, &page[n-1].ID
	}
	return x.JSON(http.StatusOK, list)
}

// getModel serves GET /v1/models/{model...}.
func (d *Door) getModel(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	id := strings.TrimPrefix(r.URL.Path, modelPath+"/")
	m, err := d.Models.Model(r.Context(), id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return modelNotFound(id)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, newModelInfo(m))
}

func modelNotFound(id string) error {
	return berth.Errorf(berth.CodeNotFound, "model: %s", rule.Clip(id))
}

package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/responses"
)

// A responseSummary is a response in a list: it has neither the output nor what the request
// set. GET /v1/responses/{response} has all.
type responseSummary struct {
	ID                 berth.ResponseID            `json:"id"`
	Object             string                      `json:"object"` // "response.summary"
	CreatedAt          int64                       `json:"created_at"`
	CompletedAt        *int64                      `json:"completed_at"`
	Status             berth.Status                `json:"status"`
	Background         bool                        `json:"background"`
	Model              string                      `json:"model"`
	Conversation       *berth.ResponseConversation `json:"conversation"`
	PreviousResponseID *berth.ResponseID           `json:"previous_response_id"`
	Error              *berth.ResponseError        `json:"error"`
	IncompleteDetails  *berth.IncompleteDetails    `json:"incomplete_details"`
	Usage              *berth.Usage                `json:"usage"`
	Cost               *berth.Cost                 `json:"cost"` // null without a priced turn
	Metadata           map[string]string           `json:"metadata"`
	APIKeyID           berth.KeyID                 `json:"api_key_id"` // or the id of a person; "" without keys
}

// maxSearch is the number of bytes of the words that are searched.
const maxSearch = 1000

func summaryOf(r *responses.Summary) *responseSummary {
	s := &responseSummary{ID: r.ID, Object: "response.summary", CreatedAt: r.CreatedAt, CompletedAt: r.CompletedAt,
		Status: r.Status, Background: r.Background,
		Model: r.Model, Conversation: r.Conversation, PreviousResponseID: r.PreviousResponseID, Error: r.Error,
		IncompleteDetails: r.IncompleteDetails,
		Usage:             r.Usage, Metadata: r.Metadata, APIKeyID: r.Key}
	if s.Metadata == nil {
		s.Metadata = map[string]string{}
	}
	if cost, priced := r.Cost(); priced {
		s.Cost = &cost
	}
	return s
}

// listOrConnect serves GET /v1/responses: a list, or a WebSocket if the request asks for another
// protocol.
func (h *handlers) listOrConnect(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if r.Header.Get("Upgrade") != "" || exchange.HeaderHas(r.Header, "Connection", "upgrade") {
		return h.socket.Connect(x, r, c)
	}
	return h.responses.list(x, r, c)
}

// list serves GET /v1/responses without an upgrade: summaries of the stored responses. A page may
// have fewer objects than its limit, or none, although another follows: last_id is the last
// response that was read. With search or tool, limit responses are read for a page.
func (h *storedResponses) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	query := responses.Query{Model: q.Text("model"), Page: page, Words: q.Text("search"),
		Key: berth.KeyID(q.Text("api_key_id")), Tool: q.Text("tool"),
		Status: berth.Status(q.OneOf("status", string(berth.StatusQueued), string(berth.StatusInProgress),
			string(berth.StatusCompleted),
			string(berth.StatusIncomplete), string(berth.StatusFailed), string(berth.StatusCancelled)))}
	if len(query.Words) > maxSearch {
		q.Fail(berth.Invalid("search", "Invalid 'search'. Expected at most %d bytes.", maxSearch))
	}
	if err := q.End(); err != nil {
		return err
	}
	found, next, err := h.store.List(r.Context(), c.Project, query)
	if err != nil {
		return exchange.ListError(err, page)
	}
	data := make([]*responseSummary, len(found))
	for i, r := range found {
		data[i] = summaryOf(r)
	}
	list := exchange.ListOf(data, next != "", func(s *responseSummary) string { return string(s.ID) })
	if next != "" {
		list.LastID = exchange.OrNull(string(next))
	}
	return x.JSON(http.StatusOK, list)
}

package assistants

import (
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/threads"

	"github.com/berth-run/berth/api/exchange"
)

// CreateThread serves POST /v1/threads. The body is optional.
func (d *Door) CreateThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req threads.ThreadRequest
	if err := x.DecodeOptional(r, threadRequest, &req); err != nil {
		return err
	}
	t, err := d.service.CreateThread(r.Context(), c.Project, &req)
	return answerJSON(x, t, err)
}

// GetThread serves GET /v1/threads/{thread}.
func (d *Door) GetThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	t, err := d.service.Thread(r.Context(), c.Project, r.PathValue("thread"))
	return answerJSON(x, t, err)
}

// UpdateThread serves POST /v1/threads/{thread}.
func (d *Door) UpdateThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := x.Decode(r, threadUpdate, &request); err != nil {
		return err
	}
	t, err := d.service.UpdateThread(r.Context(), c.Project, r.PathValue("thread"), request)
	return answerJSON(x, t, err)
}

// DeleteThread serves DELETE /v1/threads/{thread}.
func (d *Door) DeleteThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("thread")
	err := d.service.DeleteThread(r.Context(), c, id)
	return answerJSON(x, exchange.Deleted(id, "thread.deleted"), err)
}

// CreateMessage serves POST /v1/threads/{thread}/messages.
func (d *Door) CreateMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req threads.MessageRequest
	if err := x.Decode(r, messageRequest, &req); err != nil {
		return err
	}
	m, err := d.service.CreateMessage(r.Context(), c, r.PathValue("thread"), &req)
	return answerJSON(x, m, err)
}

// ListMessages serves GET /v1/threads/{thread}/messages.
func (d *Door) ListMessages(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	run := q.Text("run_id")
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := d.service.Messages(r.Context(), c, r.PathValue("thread"), run, page)
	return answerList(x, list, more, page, err, func(m *threads.Message) string { return m.ID })
}

// GetMessage serves GET /v1/threads/{thread}/messages/{message}.
func (d *Door) GetMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	m, err := d.service.Message(r.Context(), c, r.PathValue("thread"), r.PathValue("message"))
	return answerJSON(x, m, err)
}

// UpdateMessage serves POST /v1/threads/{thread}/messages/{message}.
func (d *Door) UpdateMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := x.Decode(r, metadataUpdate, &request); err != nil {
		return err
	}
	m, err := d.service.UpdateMessage(r.Context(), c, r.PathValue("thread"), r.PathValue("message"), request)
	return answerJSON(x, m, err)
}

// DeleteMessage serves DELETE /v1/threads/{thread}/messages/{message}.
func (d *Door) DeleteMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("message")
	err := d.service.DeleteMessage(r.Context(), c, r.PathValue("thread"), id)
	return answerJSON(x, exchange.Deleted(id, "thread.message.deleted"), err)
}

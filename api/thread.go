package api

import (
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/assistants"
	"github.com/berth-run/berth/api/exchange"
)

// createThread serves POST /v1/threads. It needs no body.
func (s *server) createThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req assistants.ThreadRequest
	if err := x.DecodeOptional(r, threadRequest, &req); err != nil {
		return err
	}
	t, err := s.assistants.CreateThread(r.Context(), c.Project, &req)
	return answerJSON(x, t, err)
}

// getThread serves GET /v1/threads/{thread}.
func (s *server) getThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	t, err := s.assistants.Thread(r.Context(), c.Project, r.PathValue("thread"))
	return answerJSON(x, t, err)
}

// updateThread serves POST /v1/threads/{thread}.
func (s *server) updateThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := x.Decode(r, threadUpdate, &request); err != nil {
		return err
	}
	t, err := s.assistants.UpdateThread(r.Context(), c.Project, r.PathValue("thread"), request)
	return answerJSON(x, t, err)
}

// deleteThread serves DELETE /v1/threads/{thread}.
func (s *server) deleteThread(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("thread")
	err := s.assistants.DeleteThread(r.Context(), c, id)
	return answerJSON(x, exchange.Deleted(id, "thread.deleted"), err)
}

// createMessage serves POST /v1/threads/{thread}/messages.
func (s *server) createMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req assistants.MessageRequest
	if err := x.Decode(r, messageRequest, &req); err != nil {
		return err
	}
	m, err := s.assistants.CreateMessage(r.Context(), c, r.PathValue("thread"), &req)
	return answerJSON(x, m, err)
}

// listMessages serves GET /v1/threads/{thread}/messages.
func (s *server) listMessages(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	run := q.Text("run_id")
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := s.assistants.Messages(r.Context(), c, r.PathValue("thread"), run, page)
	return answerList(x, list, more, page, err, func(m *assistants.Message) string { return m.ID })
}

// getMessage serves GET /v1/threads/{thread}/messages/{message}.
func (s *server) getMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	m, err := s.assistants.Message(r.Context(), c, r.PathValue("thread"), r.PathValue("message"))
	return answerJSON(x, m, err)
}

// updateMessage serves POST /v1/threads/{thread}/messages/{message}.
func (s *server) updateMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := x.Decode(r, metadataUpdate, &request); err != nil {
		return err
	}
	m, err := s.assistants.UpdateMessage(r.Context(), c, r.PathValue("thread"), r.PathValue("message"), request)
	return answerJSON(x, m, err)
}

// deleteMessage serves DELETE /v1/threads/{thread}/messages/{message}.
func (s *server) deleteMessage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("message")
	err := s.assistants.DeleteMessage(r.Context(), c, r.PathValue("thread"), id)
	return answerJSON(x, exchange.Deleted(id, "thread.message.deleted"), err)
}

package api

import (
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/assistants"
)

// createThread serves POST /v1/threads. It needs no body.
func (s *server) createThread(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var req assistants.ThreadRequest
	if err := s.decodeOptionalBody(w, r, threadRequest, &req); err != nil {
		return err
	}
	t, err := s.assistants.CreateThread(r.Context(), c.Project, &req)
	return answerJSON(w, t, err)
}

// getThread serves GET /v1/threads/{thread}.
func (s *server) getThread(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	t, err := s.assistants.Thread(r.Context(), c.Project, r.PathValue("thread"))
	return answerJSON(w, t, err)
}

// updateThread serves POST /v1/threads/{thread}.
func (s *server) updateThread(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := s.decodeBody(w, r, threadUpdate, &request); err != nil {
		return err
	}
	t, err := s.assistants.UpdateThread(r.Context(), c.Project, r.PathValue("thread"), request)
	return answerJSON(w, t, err)
}

// deleteThread serves DELETE /v1/threads/{thread}.
func (s *server) deleteThread(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	id := r.PathValue("thread")
	err := s.assistants.DeleteThread(r.Context(), c, id)
	return answerJSON(w, deleted(id, "thread.deleted"), err)
}

// createMessage serves POST /v1/threads/{thread}/messages.
func (s *server) createMessage(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var req assistants.MessageRequest
	if err := s.decodeBody(w, r, messageRequest, &req); err != nil {
		return err
	}
	m, err := s.assistants.CreateMessage(r.Context(), c, r.PathValue("thread"), &req)
	return answerJSON(w, m, err)
}

// listMessages serves GET /v1/threads/{thread}/messages.
func (s *server) listMessages(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	run := q.text("run_id")
	page := q.pageBoth()
	if err := q.end(); err != nil {
		return err
	}
	list, more, err := s.assistants.Messages(r.Context(), c, r.PathValue("thread"), run, page)
	return answerList(w, list, more, page, err, func(m *assistants.Message) string { return m.ID })
}

// getMessage serves GET /v1/threads/{thread}/messages/{message}.
func (s *server) getMessage(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	m, err := s.assistants.Message(r.Context(), c, r.PathValue("thread"), r.PathValue("message"))
	return answerJSON(w, m, err)
}

// updateMessage serves POST /v1/threads/{thread}/messages/{message}.
func (s *server) updateMessage(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := s.decodeBody(w, r, metadataUpdate, &request); err != nil {
		return err
	}
	m, err := s.assistants.UpdateMessage(r.Context(), c, r.PathValue("thread"), r.PathValue("message"), request)
	return answerJSON(w, m, err)
}

// deleteMessage serves DELETE /v1/threads/{thread}/messages/{message}.
func (s *server) deleteMessage(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	id := r.PathValue("message")
	err := s.assistants.DeleteMessage(r.Context(), c, r.PathValue("thread"), id)
	return answerJSON(w, deleted(id, "thread.message.deleted"), err)
}

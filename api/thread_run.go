package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/assistants"
	"github.com/berth-run/berth/internal/sse"
)

// createThreadAndRun serves POST /v1/threads/runs.
func (s *server) createThreadAndRun(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var req assistants.RunRequest
	if err := s.decodeBody(w, r, threadRunRequest, &req); err != nil {
		return err
	}
	thread, run, err := s.assistants.CreateThreadAndRun(r.Context(), c, &req)
	return s.answerRun(w, r, c, thread, run, req.Stream, err)
}

// createRun serves POST /v1/threads/{thread}/runs.
func (s *server) createRun(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	q.list("include", stepIncludable)
	if err := q.end(); err != nil {
		return err
	}
	var req assistants.RunRequest
	if err := s.decodeBody(w, r, runRequest, &req); err != nil {
		return err
	}
	run, err := s.assistants.CreateRun(r.Context(), c, r.PathValue("thread"), &req)
	return s.answerRun(w, r, c, nil, run, req.Stream, err)
}

// submitToolOutputs serves POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs.
func (s *server) submitToolOutputs(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var req struct {
		ToolOutputs []assistants.ToolOutput `json:"tool_outputs"`
		Stream      bool                    `json:"stream"`
	}
	if err := s.decodeBody(w, r, toolOutputsRequest, &req); err != nil {
		return err
	}
	run, err := s.assistants.SubmitToolOutputs(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), req.ToolOutputs)
	return s.answerRun(w, r, c, nil, run, req.Stream, err)
}

// answerRun answers with a run that has just been set going, or with its events.
func (s *server) answerRun(w http.ResponseWriter, r *http.Request, c berth.Caller, t *assistants.Thread, run *assistants.Record, stream bool, err error) error {
	if err != nil {
		return err
	}
	settle(w)
	if stream {
		return s.streamRun(w, r, c, t, run)
	}
	return writeJSON(w, http.StatusOK, run.Run)
}

// streamRun answers with the events of a run up to its next halt. A client that leaves
// leaves the run as it is.
func (s *server) streamRun(w http.ResponseWriter, r *http.Request, c berth.Caller, t *assistants.Thread, run *assistants.Record) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	h := w.Header()
	streamHeader(h)
	w.WriteHeader(http.StatusOK)
	out := newEventWriter(s.patiently(w), s.KeepAlive, false)
	if out.flush() != nil {
		return nil
	}
	defer out.keepAlive(cancel)()
	for ev, err := range s.assistants.Follow(ctx, c, run, t) {
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // the keep-alive found that the client has gone
		}
		if err != nil {
			err = followError(ctx, berth.ResponseID(run.Run.ID), err)
			_, e := describe(err, h.Get("x-request-id"))
			_ = out.named("error", e)
			return err
		}
		if out.named(ev.Name, ev.Data) != nil {
			return nil
		}
	}
	_ = out.send(func() error { return out.events.Event(sse.Event{Type: "done", Data: []byte("[DONE]")}) })
	return nil
}

// named sends v as an event of this name.
func (o *eventWriter) named(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return o.send(func() error { return o.events.Event(sse.Event{Type: name, Data: data}) })
}

// listRuns serves GET /v1/threads/{thread}/runs.
func (s *server) listRuns(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	page := q.pageBoth()
	if err := q.end(); err != nil {
		return err
	}
	list, more, err := s.assistants.Runs(r.Context(), c, r.PathValue("thread"), page)
	return answerList(w, list, more, page, err, func(run *assistants.Run) string { return run.ID })
}

// getRun serves GET /v1/threads/{thread}/runs/{run}.
func (s *server) getRun(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	run, err := s.assistants.Run(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	return answerJSON(w, run, err)
}

// updateRun serves POST /v1/threads/{thread}/runs/{run}.
func (s *server) updateRun(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := s.decodeBody(w, r, metadataUpdate, &request); err != nil {
		return err
	}
	run, err := s.assistants.UpdateRun(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), request)
	return answerJSON(w, run, err)
}

// cancelRun serves POST /v1/threads/{thread}/runs/{run}/cancel.
func (s *server) cancelRun(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	run, err := s.assistants.CancelRun(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	return answerJSON(w, run, err)
}

// listRunSteps serves GET /v1/threads/{thread}/runs/{run}/steps.
func (s *server) listRunSteps(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	q.list("include", stepIncludable)
	page := q.pageBoth()
	if err := q.end(); err != nil {
		return err
	}
	steps, err := s.assistants.Steps(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	if err != nil {
		return err
	}
	list, more, err := assistants.PageOfSteps(steps, page)
	return answerList(w, list, more, page, err, func(step assistants.Step) string { return step.ID })
}

// getRunStep serves GET /v1/threads/{thread}/runs/{run}/steps/{step}.
func (s *server) getRunStep(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	q.list("include", stepIncludable)
	if err := q.end(); err != nil {
		return err
	}
	step, err := s.assistants.Step(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), r.PathValue("step"))
	return answerJSON(w, step, err)
}

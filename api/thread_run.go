package api

import (
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/assistants"
	"github.com/berth-run/berth/api/exchange"
)

// createThreadAndRun serves POST /v1/threads/runs.
func (s *server) createThreadAndRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req assistants.RunRequest
	if err := x.Decode(r, threadRunRequest, &req); err != nil {
		return err
	}
	thread, run, err := s.assistants.CreateThreadAndRun(r.Context(), c, &req)
	return s.answerRun(x, r, c, thread, run, req.Stream, err)
}

// createRun serves POST /v1/threads/{thread}/runs.
func (s *server) createRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", stepIncludable)
	if err := q.End(); err != nil {
		return err
	}
	var req assistants.RunRequest
	if err := x.Decode(r, runRequest, &req); err != nil {
		return err
	}
	run, err := s.assistants.CreateRun(r.Context(), c, r.PathValue("thread"), &req)
	return s.answerRun(x, r, c, nil, run, req.Stream, err)
}

// submitToolOutputs serves POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs.
func (s *server) submitToolOutputs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req struct {
		ToolOutputs []assistants.ToolOutput `json:"tool_outputs"`
		Stream      bool                    `json:"stream"`
	}
	if err := x.Decode(r, toolOutputsRequest, &req); err != nil {
		return err
	}
	run, err := s.assistants.SubmitToolOutputs(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), req.ToolOutputs)
	return s.answerRun(x, r, c, nil, run, req.Stream, err)
}

// answerRun answers with a run that has just been set going, or with its events.
func (s *server) answerRun(x *exchange.Exchange, r *http.Request, c berth.Caller, t *assistants.Thread, run *assistants.Record, stream bool, err error) error {
	if err != nil {
		return err
	}
	x.Settle()
	if stream {
		return s.streamRun(x, r, c, t, run)
	}
	return x.JSON(http.StatusOK, run.Run)
}

// streamRun answers with the events of a run up to its next halt. A client that leaves
// leaves the run as it is.
func (s *server) streamRun(x *exchange.Exchange, r *http.Request, c berth.Caller, t *assistants.Thread, run *assistants.Record) error {
	out, ctx := x.Stream(r, false)
	defer out.Close()
	for ev, err := range s.assistants.Follow(ctx, c, run, t) {
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // the keep-alive found that the client has gone
		}
		if err != nil {
			err = exchange.FollowError(ctx, berth.ResponseID(run.Run.ID), err)
			_, e := exchange.Describe(err, x.RequestID())
			_ = out.JSON("error", e)
			return err
		}
		if out.JSON(ev.Name, ev.Data) != nil {
			return nil
		}
	}
	out.Done("done")
	return nil
}

// listRuns serves GET /v1/threads/{thread}/runs.
func (s *server) listRuns(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := s.assistants.Runs(r.Context(), c, r.PathValue("thread"), page)
	return answerList(x, list, more, page, err, func(run *assistants.Run) string { return run.ID })
}

// getRun serves GET /v1/threads/{thread}/runs/{run}.
func (s *server) getRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	run, err := s.assistants.Run(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	return answerJSON(x, run, err)
}

// updateRun serves POST /v1/threads/{thread}/runs/{run}.
func (s *server) updateRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := x.Decode(r, metadataUpdate, &request); err != nil {
		return err
	}
	run, err := s.assistants.UpdateRun(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), request)
	return answerJSON(x, run, err)
}

// cancelRun serves POST /v1/threads/{thread}/runs/{run}/cancel.
func (s *server) cancelRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	run, err := s.assistants.CancelRun(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	return answerJSON(x, run, err)
}

// listRunSteps serves GET /v1/threads/{thread}/runs/{run}/steps.
func (s *server) listRunSteps(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", stepIncludable)
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	steps, err := s.assistants.Steps(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	if err != nil {
		return err
	}
	list, more, err := assistants.PageOfSteps(steps, page)
	return answerList(x, list, more, page, err, func(step assistants.Step) string { return step.ID })
}

// getRunStep serves GET /v1/threads/{thread}/runs/{run}/steps/{step}.
func (s *server) getRunStep(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", stepIncludable)
	if err := q.End(); err != nil {
		return err
	}
	step, err := s.assistants.Step(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), r.PathValue("step"))
	return answerJSON(x, step, err)
}

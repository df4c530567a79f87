package assistants

import (
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/threads"

	"github.com/berth-run/berth/api/exchange"
)

// CreateThreadAndRun serves POST /v1/threads/runs.
func (d *Door) CreateThreadAndRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req threads.RunRequest
	if err := x.Decode(r, threadRunRequest, &req); err != nil {
		return err
	}
	thread, run, err := d.service.CreateThreadAndRun(r.Context(), c, &req)
	return d.answerRun(x, r, c, startedRun{thread: thread, run: run, stream: req.Stream}, err)
}

// CreateRun serves POST /v1/threads/{thread}/runs.
func (d *Door) CreateRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	content := len(q.List("include", stepIncludable)) > 0
	if err := q.End(); err != nil {
		return err
	}
	var req threads.RunRequest
	if err := x.Decode(r, runRequest, &req); err != nil {
		return err
	}
	run, err := d.service.CreateRun(r.Context(), c, r.PathValue("thread"), &req)
	return d.answerRun(x, r, c, startedRun{run: run, stream: req.Stream, content: content}, err)
}

// SubmitToolOutputs serves POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs.
func (d *Door) SubmitToolOutputs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req struct {
		ToolOutputs []threads.ToolOutput `json:"tool_outputs"`
		Stream      bool                 `json:"stream"`
	}
	if err := x.Decode(r, toolOutputsRequest, &req); err != nil {
		return err
	}
	run, err := d.service.SubmitToolOutputs(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), req.ToolOutputs)
	return d.answerRun(x, r, c, startedRun{run: run, stream: req.Stream}, err)
}

// A startedRun is a run that has just been started or continued.
type startedRun struct {
	thread  *threads.Thread // that was created for it, or nil
	run     *threads.Record
	stream  bool // the client wants a stream
	content bool // in which search results have their content
}

// answerRun answers with a run, or streams it.
func (d *Door) answerRun(x *exchange.Exchange, r *http.Request, c berth.Caller, f startedRun, err error) error {
	if err != nil {
		return err
	}
	x.Settle()
	if f.stream {
		return d.streamRun(x, r, c, f)
	}
	return x.JSON(http.StatusOK, f.run.Run)
}

// streamRun streams the events of a run until it ends or waits for outputs. The run
// continues if the client disconnects.
func (d *Door) streamRun(x *exchange.Exchange, r *http.Request, c berth.Caller, f startedRun) error {
	out, ctx := x.Stream(r, false)
	defer out.Close()
	for ev, err := range d.service.Follow(ctx, c, f.run, f.thread, f.content) {
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // a keep-alive has detected that the client is gone
		}
		if err != nil {
			err = exchange.FollowError(ctx, berth.ResponseID(f.run.Run.ID), err)
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

// ListRuns serves GET /v1/threads/{thread}/runs.
func (d *Door) ListRuns(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := d.service.Runs(r.Context(), c, r.PathValue("thread"), page)
	return answerList(x, list, more, page, err, func(run *threads.Run) string { return run.ID })
}

// GetRun serves GET /v1/threads/{thread}/runs/{run}.
func (d *Door) GetRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	run, err := d.service.Run(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	return answerJSON(x, run, err)
}

// UpdateRun serves POST /v1/threads/{thread}/runs/{run}.
func (d *Door) UpdateRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var request json.RawMessage
	if err := x.Decode(r, metadataUpdate, &request); err != nil {
		return err
	}
	run, err := d.service.UpdateRun(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), request)
	return answerJSON(x, run, err)
}

// CancelRun serves POST /v1/threads/{thread}/runs/{run}/cancel.
func (d *Door) CancelRun(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	run, err := d.service.CancelRun(r.Context(), c, r.PathValue("thread"), r.PathValue("run"))
	return answerJSON(x, run, err)
}

// ListRunSteps serves GET /v1/threads/{thread}/runs/{run}/steps.
func (d *Door) ListRunSteps(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	content := len(q.List("include", stepIncludable)) > 0
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	steps, err := d.service.Steps(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), content)
	if err != nil {
		return err
	}
	list, more, err := threads.PageOfSteps(steps, page)
	return answerList(x, list, more, page, err, func(step threads.Step) string { return step.ID })
}

// GetRunStep serves GET /v1/threads/{thread}/runs/{run}/steps/{step}.
func (d *Door) GetRunStep(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	content := len(q.List("include", stepIncludable)) > 0
	if err := q.End(); err != nil {
		return err
	}
	step, err := d.service.Step(r.Context(), c, r.PathValue("thread"), r.PathValue("run"), r.PathValue("step"), content)
	return answerJSON(x, step, err)
}

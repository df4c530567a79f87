package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
)

// concluded reports whether the model has finished its answer, so that only the final
// event is missing, after a compaction perhaps.
func (r *run) concluded(output []berth.Item) bool {
	if r.compactor.triggered() {
		return slices.ContainsFunc(output, transcript.IsCompaction)
	}
	if len(r.record.Request.ContextManagement) == 0 {
		return false
	}
	if len(r.pending) > 0 || r.waitsForClient(r.writer.Body()) {
		return false
	}
	for _, it := range slices.Backward(output) {
		if !transcript.IsCompaction(it) {
			return it.Type() == berth.ItemMessage && it.Status() == berth.StatusCompleted
		}
	}
	return false
}

// conclude compacts the context if it is above its threshold, and completes the response.
func (r *run) conclude(ctx context.Context) error {
	if err := r.compactor.after(ctx); err != nil {
		return err
	}
	return r.complete(ctx)
}

// complete ends the response as completed.
func (r *run) complete(ctx context.Context) error {
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return []berth.Event{r.final(body, berth.StatusCompleted, "")}
	})
}

// stop ends a response without open items as incomplete.
func (r *run) stop(ctx context.Context, reason string) error {
	r.log().Info("stopped response at a limit", "reason", reason)
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return []berth.Event{r.final(body, berth.StatusIncomplete, reason)}
	})
}

// end writes the events that end the response. It closes open items as incomplete and
// reports the failure, unless that is nil.
func (r *run) end(ctx context.Context, status berth.Status, incomplete string, failure error) error {
	return r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		events := abandon(body, r.turnWriter.unfinished(), nil)
		body = fold(body, events)
		if failure != nil {
			e := wireError(failure)
			body.Error = &berth.ResponseError{Code: e.Code, Message: e.Message}
			events = append(events, berth.ErrorEvent(e))
		}
		return append(events, r.final(body, status, incomplete))
	})
}

// final returns the last event of a response that ends with this status. incomplete is
// the reason of an incomplete response.
func (r *run) final(body berth.Response, status berth.Status, incomplete string) berth.Event {
	now := time.Now().Unix()
	body.Status = status
	body.ServiceTier, body.Moderation = cmp.Or(r.tier, "default"), r.moderation
	types := map[berth.Status]berth.EventType{
		berth.StatusCompleted:  berth.EventCompleted,
		berth.StatusIncomplete: berth.EventIncomplete,
		berth.StatusFailed:     berth.EventFailed,
		berth.StatusCancelled:  berth.EventCancelled,
	}
	if status == berth.StatusCompleted {
		body.CompletedAt = &now
	}
	if status == berth.StatusCompleted || status == berth.StatusIncomplete {
		usage := r.usage
		body.Usage = &usage
	}
	if incomplete != "" {
		body.IncompleteDetails = &berth.IncompleteDetails{Reason: incomplete}
	}
	return berth.Event{Type: types[status], Response: &body}
}

// wireError returns a failure as the client sees it. It hides internal errors.
func wireError(err error) *berth.EventError {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code == berth.CodeInternal {
		return &berth.EventError{Type: "server_error", Code: "server_error",
			Message: "The server had an error while processing your request."}
	}
	out := &berth.EventError{Type: "server_error", Code: "server_error", Message: e.Message}
	switch e.Code {
	case berth.CodeDependency:
		out.Type, out.Code = "external_connector_error", "http_error"
	case berth.CodeRateLimited:
		out.Type, out.Code = "rate_limit_error", "rate_limit_exceeded"
	case berth.CodeInvalid, berth.CodeTooLarge:
		out.Type, out.Code = "invalid_request_error", "invalid_prompt"
	}
	if e.Wire != "" {
		out.Code = e.Wire
	}
	if e.Param != "" {
		out.Param = &e.Param
	}
	return out
}

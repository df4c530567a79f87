package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/journal"
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
	return r.finish(ctx, berth.StatusCompleted, "")
}

// stop ends a response without open items as incomplete, because of a limit.
func (r *run) stop(ctx context.Context, reason string) error {
	r.log().Info("stopped response at a limit", "reason", reason)
	return r.finish(ctx, berth.StatusIncomplete, reason)
}

// An ending writes the last event of a response.
type ending struct {
	writer     *journal.Writer
	usage      berth.Usage
	tier       string          // as the upstream of the last turn reported it; empty if unknown
	stopText   string          // the stop sequence that ended the last turn, or ""
	moderation json.RawMessage // by the upstream of the last turn; nil without scores
}

// finish ends a response without open items. incomplete is the reason of an incomplete one.
func (e *ending) finish(ctx context.Context, status berth.Status, incomplete string) error {
	return e.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return []berth.Event{e.final(body, status, incomplete)}
	})
}

// breakOff ends a response in the middle of a turn. It closes the open items as incomplete and
// reports the failure, unless that is nil.
func (e *ending) breakOff(ctx context.Context, open drafts, status berth.Status, incomplete string,
	failure error) error {
	return e.writer.Update(ctx, func(body berth.Response) []berth.Event {
		events := abandon(body, open, nil)
		body = fold(body, events)
		if failure != nil {
			wire := wireError(failure)
			body.Error = &berth.ResponseError{Code: wire.Code, Message: wire.Message}
			events = append(events, berth.ErrorEvent(wire))
		}
		return append(events, e.final(body, status, incomplete))
	})
}

// final returns the last event of a response that ends with this status. incomplete is
// the reason of an incomplete response.
func (e *ending) final(body berth.Response, status berth.Status, incomplete string) berth.Event {
	now := time.Now().Unix()
	body.Status = status
	body.ServiceTier, body.Moderation = cmp.Or(e.tier, "default"), e.moderation
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
		usage := e.usage
		body.Usage = &usage
	}
	if e.stopText != "" && status == berth.StatusCompleted {
		of := berth.ResponseBerth{}
		if body.Berth != nil {
			of = *body.Berth
		}
		of.StopSequence, body.Berth = e.stopText, &of
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

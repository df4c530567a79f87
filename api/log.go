package api

import (
	"math"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// listLogs serves GET /v1/containers/{container}/logs: the commands that ran in the
// container, in the order of their ends. With follow=true, it streams an event for each
// command after starting_after until the container ends.
func (h *containers) listLogs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	if q.Boolean("follow", false) {
		after := q.Integer("starting_after", -1, -1, math.MaxInt64)
		if err := q.End(); err != nil {
			return err
		}
		return h.followLogs(x, r, c, after)
	}
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := h.service.Logs().List(r.Context(), c.Project, containerID(r), page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(l *berth.ContainerLog) string {
		return string(l.ID)
	}))
}

// A logEvent is an event of the stream of a container's log.
type logEvent struct {
	Type           berth.EventType     `json:"type"`
	SequenceNumber int64               `json:"sequence_number"`
	Log            *berth.ContainerLog `json:"log,omitempty"`
}

// followLogs streams a container's log. It returns an error before the stream if the
// container does not exist.
func (h *containers) followLogs(x *exchange.Exchange, r *http.Request, c berth.Caller, after int64) error {
	if _, _, err := h.service.Logs().List(r.Context(), c.Project, containerID(r), berth.Page{Limit: 1}); err != nil {
		return err
	}
	out, ctx := x.Stream(r, false)
	defer out.Close()
	for l, err := range h.service.Logs().Follow(ctx, c.Project, containerID(r), after) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return out.Fail(after+1, err)
		}
		after = l.SequenceNumber
		if out.JSON(string(berth.EventContainerLog), logEvent{berth.EventContainerLog, after, l}) != nil {
			return nil
		}
	}
	_ = out.JSON(string(berth.EventContainerLogDone), logEvent{Type: berth.EventContainerLogDone,
		SequenceNumber: after + 1})
	return nil
}

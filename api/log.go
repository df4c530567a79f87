package api

import (
	"context"
	"encoding/json"
	"math"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// listLogs serves GET /v1/containers/{container}/logs: the commands that ran in the
// container, by their ends. With follow=true it is a stream of events, one for each
// command, from the one after starting_after on until the container ends.
func (s *server) listLogs(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	if q.boolean("follow", false) {
		after := q.integer("starting_after", -1, -1, math.MaxInt64)
		if err := q.end(); err != nil {
			return err
		}
		return s.followLogs(w, r, c, after)
	}
	page := q.page(20, 100)
	if err := q.end(); err != nil {
		return err
	}
	data, more, err := s.Containers.Logs().List(r.Context(), c.Project, containerID(r), page)
	if err != nil {
		return listError(err, page)
	}
	return writeJSON(w, http.StatusOK, listOf(data, more, func(l *berth.ContainerLog) string { return string(l.ID) }))
}

// A logEvent is an event of the stream of a container's log.
type logEvent struct {
	Type           berth.EventType     `json:"type"`
	SequenceNumber int64               `json:"sequence_number"`
	Log            *berth.ContainerLog `json:"log,omitempty"`
}

// followLogs streams a container's log. The stream begins when it is known that the
// container is there.
func (s *server) followLogs(w http.ResponseWriter, r *http.Request, c berth.Caller, after int64) error {
	if _, _, err := s.Containers.Logs().List(r.Context(), c.Project, containerID(r), store.Page{Limit: 1}); err != nil {
		return err
	}
	ctx, gone := context.WithCancel(r.Context())
	defer gone()
	streamHeader(w.Header())
	out := newEventWriter(s.patiently(w), s.KeepAlive, false)
	w.WriteHeader(http.StatusOK)
	if out.flush() != nil {
		return nil
	}
	stop := out.keepAlive(gone)
	defer stop()
	tell := func(ev logEvent) error {
		data, err := json.Marshal(ev)
		if err != nil {
			return err
		}
		return out.event(store.Event{Type: ev.Type, Data: data})
	}
	for l, err := range s.Containers.Logs().Follow(ctx, c.Project, containerID(r), after) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return out.fail(after+1, err, c.RequestID)
		}
		after = l.SequenceNumber
		if tell(logEvent{berth.EventContainerLog, after, l}) != nil {
			return nil
		}
	}
	_ = tell(logEvent{Type: berth.EventContainerLogDone, SequenceNumber: after + 1})
	return nil
}

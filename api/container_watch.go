package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
)

// watchContainerFiles serves GET /v1/containers/{container}/watch: a stream of
// berth.ContainerFileEvents, which begins with the files that are there. It ends with
// the container, and that is told as an error event.
func (s *server) watchContainerFiles(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	if err := newQuery(r).end(); err != nil {
		return err
	}
	_, release, err := s.Containers.Access().Guest(r.Context(), c.Project, containerID(r)) // what is wrong from the start has a status
	if err != nil {
		return err
	}
	release()
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
	number := int64(0)
	for ev, err := range s.Containers.Files().Watch(ctx, c.Project, containerID(r)) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return out.fail(number, err, h.Get("x-request-id"))
		}
		data, _ := json.Marshal(ev) // it always marshals
		if out.send(func() error { return out.events.Event(sse.Event{Type: string(ev.Type), Data: data}) }) != nil {
			return nil
		}
		number++
	}
	return nil
}

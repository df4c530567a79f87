package e2b

import (
	"context"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

// discardTimeout bounds the deletion of a container whose sandbox could not be saved.
const discardTimeout = time.Minute

// maxPauseTries is how often a pause is tried again because clients connect to the sandbox meanwhile.
const maxPauseTries = 20

// pauseBody checks the body of POST /sandboxes/{sandbox}/pause. A container is paused with its
// memory.
var pauseBody = rule.Object(rule.Fields{"memory": onlyTrue})

func onlyTrue(at string, v any) error {
	if v != true {
		return berth.Invalid(at, "This server pauses a sandbox with its memory. Omit '%s', or set it to true.", at)
	}
	return nil
}

// pause serves POST /sandboxes/{sandbox}/pause.
func (d *Door) pause(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := x.DecodeOptional(r, pauseBody, &struct{}{}); err != nil {
		return err
	}
	id := sandboxOf(r)
	rec, _, err := d.read(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	if rec.Paused {
		return berth.Errorf(berth.CodeConflict, "Sandbox '%s' is already paused.", nameOf(id))
	}
	if err := d.pauseNow(r.Context(), c.Project, id); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// pauseNow pauses a sandbox. It remains until a client resumes or deletes it, or its container
// expires. Connections to it end, while their processes stay; a call of a response that runs in it is a conflict.
func (d *Door) pauseNow(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	for try := 0; ; try++ {
		ended, err := d.connections.end(ctx, id)
		if err != nil {
			return err
		}
		_, err = d.Containers.Pause(ctx, p, id)
		if err == nil {
			break
		}
		if berth.ErrorCode(err) != berth.CodeConflict || ended == 0 || try == maxPauseTries {
			return err
		}
	}
	_, err := d.update(ctx, p, id, func(rec *record) error {
		if !rec.Paused {
			d.emit(p, id, rec, berth.EventSandboxPaused, nil)
		}
		rec.Paused, rec.deadline = true, never
		return nil
	})
	return err
}

// discard deletes a container that no client knows.
func (d *Door) discard(p berth.ProjectID, id berth.ContainerID) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTimeout)
	defer cancel()
	if err := d.Containers.Delete(ctx, p, id); err != nil {
		d.Log.Error("failed to delete the container of a sandbox that could not be saved", "container", id, "err", err)
	}
}

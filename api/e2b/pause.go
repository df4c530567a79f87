package e2b

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

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
func (h *sandboxes) pause(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := x.DecodeOptional(r, pauseBody, &struct{}{}); err != nil {
		return err
	}
	id := sandboxOf(r)
	rec, _, err := h.deadlines.Read(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	if rec.Paused {
		return berth.Errorf(berth.CodeConflict, "Sandbox '%s' is already paused.", nameOf(id))
	}
	if err := h.deadlines.Pause(r.Context(), c.Project, id); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

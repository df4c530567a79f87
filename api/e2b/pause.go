package e2b

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/internal/rule"
)

// pauseBody checks the body of POST /sandboxes/{sandbox}/pause.
var pauseBody = rule.Object(rule.Fields{"memory": rule.Boolean})

func onlyTrue(at string, v any) error {
	if v != true {
		return berth.Invalid(at, "This server resumes a sandbox as it was paused. Omit '%s', or set it to true.", at)
	}
	return nil
}

// kept returns what a sandbox keeps that is paused with or without its memory; nil is with.
func kept(memory *bool) deadline.Kept {
	if memory != nil && !*memory {
		return deadline.FilesOnly
	}
	return deadline.Memory
}

// pause serves POST /sandboxes/{sandbox}/pause.
func (h *sandboxes) pause(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Memory *bool `json:"memory"`
	}
	if err := x.DecodeOptional(r, pauseBody, &body); err != nil {
		return err
	}
	id := sandboxOf(r)
	done, err := h.deadlines.Turn(r.Context(), id)
	if err != nil {
		return err
	}
	defer done()
	rec, _, err := h.deadlines.Read(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	if rec.Paused {
		return berth.Errorf(berth.CodeConflict, "Sandbox '%s' is already paused.", nameOf(id))
	}
	if err := h.deadlines.Pause(r.Context(), c.Project, id, kept(body.Memory)); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

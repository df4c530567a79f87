package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
)

// EndUsers knows the end users for whom clients send requests; *enduser.Service is one.
type EndUsers interface {
	// FromRequest returns a caller with the end user that a request names, if it names one. It returns an error for
	// the client if the user must be refused.
	FromRequest(ctx context.Context, c berth.Caller, req *berth.ResponseRequest) (berth.Caller, error)
}

// callerOf returns the caller of a run that is resumed.
func callerOf(rec *store.Response) berth.Caller {
	c := berth.Caller{Project: rec.Project, Key: rec.Key, RequestID: rec.RequestID}
	if b := rec.Body.Berth; b != nil && b.EndUser != "" {
		c.Subject = &berth.Subject{EndUser: b.EndUser}
	}
	return c
}

// checkEndUser refuses a request for an end user that continues a response of another.
func (a *admission) checkEndUser(ctx context.Context) error {
	of, id := a.caller.Subject, a.req.PreviousResponseID
	if of == nil || id == "" {
		return nil
	}
	rec, err := a.engine.Responses.GetResponse(ctx, a.caller.Project, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil // as for all callers
	}
	if err != nil {
		return fmt.Errorf("read previous response: %w", err)
	}
	if b := rec.Body.Berth; b != nil && b.EndUser != "" && b.EndUser != of.EndUser {
		return transcript.PreviousNotFound(id)
	}
	return nil
}

// setEndUser notes the end user of the caller in a new response.
func (a *admission) setEndUser(body *berth.Response) {
	if a.caller.Subject == nil {
		return
	}
	of := berth.ResponseBerth{}
	if body.Berth != nil {
		of = *body.Berth
	}
	of.EndUser, body.Berth = a.caller.Subject.EndUser, &of
}

package engine

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
)

// begin creates a reserved container for a call that the model has started to write, so that the
// container starts before the call is complete.
func (s *reservations) begin(e *Engine, p berth.ProjectID, id berth.ContainerID) {
	if s.creating || len(s.provided) == 0 {
		return
	}
	s.creating = true
	s.creation.Go(func() {
		if err := e.Containers.Begin(e.base, p, id); err != nil {
			e.Log.Debug("failed to create a container ahead of its first call", "container", id, "err", err)
		}
	})
}

// release releases the containers that the run was given.
func (s *reservations) release(e *Engine, p berth.ProjectID) {
	s.creation.Wait()
	for _, id := range s.provided {
		e.Containers.Release(p, id)
	}
	s.provided = nil
}

// environmentOf returns the environment in which a tool's calls run, or nil.
func (e *Engine) environmentOf(t berth.Tool) *berth.ShellToolEnvironment {
	kind := e.Tools.Kind(t.Type())
	if kind == nil || kind.Container == nil {
		return nil
	}
	environment, err := kind.Container.Environment(t)
	if err != nil {
		return nil
	}
	return environment
}

// reserveContainer reserves the container of a run again if the crash came before its first use,
// so that it does not exist. A container that a call has used and that is gone stays gone.
func (r *run) reserveContainer(ctx context.Context) error {
	e, rec := r.engine, r.record
	if rec.Container == "" || !slices.ContainsFunc(rec.Request.Tools, func(t berth.Tool) bool {
		environment := e.environmentOf(t)
		return environment != nil && environment.Bare()
	}) {
		return nil
	}
	outputs := transcript.Outputs(e.Tools, rec.Body.Output)
	for i, it := range rec.Body.Output {
		t := r.tools.hosted(e.Tools.Name(it))
		if _, answered := outputs[i]; answered && t != nil && t.kind.Container != nil {
			return nil
		}
	}
	caller := callerOf(rec)
	caller.Response = rec.Body.ID
	if err := e.Containers.Reserve(ctx, caller, rec.Container); err != nil {
		return err
	}
	r.reservations.provided = append(r.reservations.provided, rec.Container)
	return nil
}

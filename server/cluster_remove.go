package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/engine"
)

// A remover deletes containers and responses of all servers.
type remover struct {
	*container.Service
	engine  *engine.Engine
	cluster cluster.Placement
}

// Delete implements containerRemover.
func (m remover) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	o := cluster.Object{Project: p, Container: id}
	place, err := m.cluster.Where(ctx, o, cluster.Use)
	if err != nil {
		return fmt.Errorf("locate container: %w", err)
	}
	if place.Server != "" {
		return m.cluster.Remove(ctx, place.Server, o)
	}
	return m.Service.Delete(ctx, p, id)
}

// removeHere deletes for another server what this one has.
func (m remover) removeHere(ctx context.Context, o cluster.Object) error {
	if o.Container != "" {
		return m.Service.Delete(ctx, o.Project, o.Container)
	}
	return m.engine.Delete(ctx, berth.Caller{Project: o.Project}, o.Response)
}

// A responsesRemover implements responseRemover.
type responsesRemover struct{ remover }

func (m responsesRemover) Delete(ctx context.Context, c berth.Caller, id berth.ResponseID) error {
	err := m.engine.Delete(ctx, c, id)
	if e, ok := errors.AsType[*cluster.ElsewhereError](err); ok {
		return m.cluster.Remove(ctx, e.Server, cluster.Object{Project: c.Project, Response: id})
	}
	return err
}

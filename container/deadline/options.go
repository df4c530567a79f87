package deadline

import (
	"context"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/store"
)

// Options are the parts of a Service. Containers, Objects, Log and Now are required.
type Options struct {
	Containers *container.Service
	Placement  cluster.Placement // default: cluster.Solo
	Objects    store.Objects
	Deliveries Deliveries // default: events go to nobody
	CPU        float64    // cores of a container
	Log        *slog.Logger
	Now        func() time.Time

	// Remove deletes a container of any server. Default: Containers.Delete.
	Remove func(context.Context, berth.ProjectID, berth.ContainerID) error
}

// Deliveries tell others of events.
type Deliveries interface {
	// SandboxEvent returns the objects that, once they are stored with an event, send it.
	SandboxEvent(ctx context.Context, p berth.ProjectID, e *berth.SandboxEvent) ([]*store.Object, error)
}

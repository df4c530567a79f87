package deadline

import (
	"context"
	"log/slog"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// Options are the parts of a Service. Containers, Objects and Log are required.
type Options struct {
	Containers Containers
	Placement  cluster.Placement // default: cluster.Solo
	Objects    store.Objects
	Deliveries Deliveries // default: events go to nobody
	CPU        float64    // cores of a container
	Log        *slog.Logger
	Clock      clock.Clock // default: that of the system

	// Remove deletes a container of any server. Default: Containers.Delete.
	Remove func(context.Context, berth.ProjectID, berth.ContainerID) error
}

// Deliveries tell others of events.
type Deliveries interface {
	// SandboxEvent returns the objects that, once they are stored with an event, send it.
	SandboxEvent(ctx context.Context, p berth.ProjectID, e *berth.SandboxEvent) ([]*store.Object, error)
}

// Containers are the containers of this server, as *container.Service has them.
type Containers interface {
	Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error)
	Pause(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error)
	Resume(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error)
	Reboot(ctx context.Context, p berth.ProjectID, id berth.ContainerID, env []string) error
	Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error

	// OnEnded makes ended be called when a container of this server ends.
	OnEnded(ended func(p berth.ProjectID, id berth.ContainerID))
}

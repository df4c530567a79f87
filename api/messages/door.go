package messages

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/journal"
)

// Options are what the door needs.
type Options struct {
	Engine     *engine.Engine
	Journal    *journal.Journal // the engine's journal
	Models     Models
	Containers Containers // nil: messages do not say when their containers expire
}

// Models lists the models that requests may use.
type Models interface {
	Models(ctx context.Context) ([]berth.Model, error)
	// Model returns a model, even an unlisted one.
	Model(ctx context.Context, name string) (berth.Model, error)
}

// Containers returns the containers of server tools.
type Containers interface {
	Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error)
}

// A Door serves /v1/messages. It is safe for concurrent use.
type Door struct {
	Options
	items     *request.Rules // completes the items of a request
	upstreams *engine.Relay
}

// New returns a door.
func New(opts Options) *Door {
	return &Door{opts, request.New(opts.Engine.Tools), engine.NewRelay(opts.Engine)}
}

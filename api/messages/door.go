package messages

import (
	"context"
	"io"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/skills"
)

// Options are what the door needs.
type Options struct {
	Engine     *engine.Engine
	Journal    *journal.Journal // the engine's journal
	Models     Models
	Containers Containers // nil: messages do not say when their containers expire
	Batches    *batch.Messages
	Files      *files.Service
	Skills     *skills.Service
	Outputs    Outputs // nil: files of containers cannot be read
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

// Outputs are the files of containers.
type Outputs interface {
	List(ctx context.Context, p berth.ProjectID, id berth.ContainerID, page berth.Page) ([]*berth.ContainerFile, bool,
		error)
	Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID, file berth.CFileID) (*berth.ContainerFile, error)
	Open(ctx context.Context, p berth.ProjectID, id berth.ContainerID, file berth.CFileID) (io.ReadCloser,
		*berth.ContainerFile, error)
	Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID, file berth.CFileID) error
}

// A Door serves /v1/messages. It is safe for concurrent use.
type Door struct {
	Options
	items     *request.Rules // completes the items of a request
	upstreams *engine.Forwarder
	batches   *messageBatches
	files     *storedFiles
	skills    *storedSkills
}

// New returns a door.
func New(opts Options) *Door {
	return &Door{opts, request.New(opts.Engine.Tools), opts.Engine.Forwarder, &messageBatches{opts.Batches},
		&storedFiles{opts.Files, opts.Outputs}, &storedSkills{opts.Skills}}
}

package engine

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
)

// A Memory holds the chains of one connection's responses that are not stored.
type Memory = transcript.Unstored

// NewMemory returns a Memory that holds items of at most limit bytes.
func NewMemory(limit int64) *Memory { return transcript.NewUnstored(limit) }

// An Option changes how Create answers one request.
type Option func(*run)

// Within lets a request continue a response in m. Create adds a response that is not
// stored to m.
func Within(m *Memory) Option { return func(r *run) { r.options.unstored = m } }

// Prepared ends a response as soon as it is created, without asking the model. A
// response that continues it finds its input and its container.
func Prepared() Option { return func(r *run) { r.options.prepared = true } }

// As sets the id of the response. A part of this server that has recorded the id can find
// out after a crash whether the response was created. Create returns store.ErrExists if
// the id is taken.
func As(id berth.ResponseID) Option { return func(r *run) { r.options.id = id } }

// InContainer sets the container that tools of the type container_auto use if the
// response's chain has none and it still runs. The empty id changes nothing.
func InContainer(id berth.ContainerID) Option {
	return func(r *run) { r.options.container = id }
}

// Holding calls hold when the run of the response starts, and the function that hold
// returns when the run has ended. hold is not called if Create fails or returns a response
// that existed already.
func Holding(hold func() (release func())) Option { return func(r *run) { r.options.hold = hold } }

// Through replaces the model's provider. Use it only for responses that are not stored: a
// resumed run calls the model's own provider.
func Through(p model.Provider) Option { return func(r *run) { r.provider = p } }

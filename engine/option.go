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

// Within lets a request continue a response in m, and adds its response to m unless it
// is stored.
func Within(m *Memory) Option { return func(r *run) { r.options.unstored = m } }

// Prepared ends a response as soon as it is created, without asking the model. A
// response that continues it finds its input and its container.
func Prepared() Option { return func(r *run) { r.options.prepared = true } }

// As gives the response an id that a part of this server has noted already, so that
// after a crash it can tell whether Create did its work, or ask it again. An id that
// is taken is store.ErrExists.
func As(id berth.ResponseID) Option { return func(r *run) { r.options.id = id } }

// Holding has hold called when the run of the response starts, and what that returns
// when the run has ended. It is for what the request holds until then. hold is not called
// if Create fails or finds that the response was created before.
func Holding(hold func() (release func())) Option { return func(r *run) { r.options.hold = hold } }

// Through has a provider answer in the place of the model's own. It is for responses
// that are not stored: another life of the server would ask the model's.
func Through(p model.Provider) Option { return func(r *run) { r.provider = p } }

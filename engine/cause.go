package engine

import (
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// endGrace bounds the time for a run's last events after its context has ended.
const endGrace = 10 * time.Second

// The causes that end a run before its answer.
var (
	errCancelled    = errors.New("the response was cancelled")
	errDisconnected = errors.New("the client disconnected")
	errLeaseLost    = leaseLost{}
)

// leaseLost is the error of a run that another server may resume. It is a tool.ErrDetached, so that
// calls go on for that server.
type leaseLost struct{}

func (leaseLost) Error() string { return "the lease was lost" }

func (leaseLost) Is(target error) bool { return target == tool.ErrDetached }

// lost reports whether an error of the store means that this server does not hold the run,
// because another server does or because it was deleted.
func lost(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
}

var errStopping = berth.Errorf(berth.CodeUnavailable, "The server is stopping. Send the request again in a moment.")

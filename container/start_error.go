package container

import (
	"errors"
	"fmt"

	"github.com/berth-run/berth"
)

// A stepError names the step of a start that failed, in words for the client.
type stepError struct {
	step string
	err  error // for the operator
}

func (e stepError) Error() string { return e.step + ": " + e.err.Error() }

func (e stepError) Unwrap() error { return e.err }

// startError returns the error for users of a container that did not start. The driver's error
// may describe the host, so it is only logged.
func startError(id berth.ContainerID, err error) error {
	why := "the server was interrupted"
	if e, ok := errors.AsType[stepError](err); ok {
		why = e.step
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		why += ": " + e.Message
	}
	return &berth.Error{Code: berth.CodeUnavailable, Wire: "container_start_failed", Err: err,
		Message: fmt.Sprintf("Container with id '%s' could not be started: %s.", id, trimPeriod(why))}
}

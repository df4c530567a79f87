package cluster

import (
	"time"

	"github.com/berth-run/berth"
)

// An ElsewhereError means that another member must do what was requested: it has the
// container, or the run. It is the cause of a *berth.Error.
type ElsewhereError struct{ Server string }

func (e *ElsewhereError) Error() string { return "server " + e.Server + " must do this" }

// Elsewhere returns the error for the client, and for the door that forwards its request,
// about something that another server has.
func Elsewhere(what, server string) error {
	return &berth.Error{Code: berth.CodeUnavailable, RetryAfter: 2 * time.Second, Err: &ElsewhereError{server},
		Message: what + " is on another server of the cluster, which cannot be reached at the moment. Try again later."}
}

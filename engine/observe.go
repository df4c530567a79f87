package engine

import (
	"time"

	"github.com/berth-run/berth"
)

// The outcomes of a call that an Observer receives.
const (
	OutcomeOK        = "ok"
	OutcomeFailed    = "failed"    // one of its commands failed
	OutcomeTimeout   = "timeout"   // one of its commands exceeded its time limit
	OutcomeError     = "error"     // the call could not run at all
	OutcomeCancelled = "cancelled" // the response ended first
	OutcomeClient    = "client"    // the client answers it
)

// An Observer counts an engine's calls and responses for metrics. Its methods must not
// block.
type Observer interface {
	// Called reports a call that a tool has answered or that was passed to the client, by
	// the type of its item. took is 0 for a call of the client.
	Called(t berth.ItemType, outcome string, took time.Duration)
	// Ended reports a response that has ended, with the number of its turns.
	Ended(status berth.Status, turns int)
}

type noObserver struct{}

func (noObserver) Called(berth.ItemType, string, time.Duration) {}

func (noObserver) Ended(berth.Status, int) {}

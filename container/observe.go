package container

import (
	"time"

	"github.com/berth-run/berth"
)

// Values of how in Observer.Started: the way in which a sandbox was started.
const (
	StartCold   = "cold"
	StartPool   = "pool"
	StartMemory = "memory" // from a snapshot with memory
	StartFailed = "failed"
)

// An Observer receives the events of a Service, for metrics. Its methods must not block.
type Observer interface {
	// Started is called when a container can be used or failed to start. took is the time
	// since the request.
	Started(how string, took time.Duration)
	// Ended is called with the reason of a container's end: expired, deleted, oom, killed, host, disk or evicted.
	Ended(reason string)
	// Ran is called when a command has ended. outcome is ok, failed, timeout or unknown.
	Ran(source berth.LogSource, outcome string, took time.Duration)
}

type noObserver struct{}

func (noObserver) Started(string, time.Duration)              {}
func (noObserver) Ended(string)                               {}
func (noObserver) Ran(berth.LogSource, string, time.Duration) {}

// outcomeLabel returns the outcome of a command for an Observer.
func outcomeLabel(o berth.ShellOutcome) string {
	switch {
	case o.Type != "exit":
		return o.Type
	case o.ExitCode != nil && *o.ExitCode == 0:
		return "ok"
	}
	return "failed"
}

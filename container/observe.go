package container

import (
	"time"

	"github.com/berth-run/berth"
)

// The ways in which a container's sandbox comes to be, as an Observer is told them.
const (
	StartCold   = "cold"
	StartPool   = "pool"
	StartMemory = "memory" // from a snapshot that holds its memory
	StartFailed = "failed"
)

// An Observer is told what a keeper does, for figures. Its methods must not block.
type Observer interface {
	// Started is told of a container that can be used, or could not be started, and
	// how long that took since it was asked for.
	Started(how string, took time.Duration)
	// Ended is told why a container ended: expired, deleted, oom, killed, host or disk.
	Ended(reason string)
	// Ran is told of a command that ended: berth.LogShell or berth.LogExec, and ok,
	// failed, timeout or unknown.
	Ran(source berth.LogSource, outcome string, took time.Duration)
}

type noObserver struct{}

func (noObserver) Started(string, time.Duration)              {}
func (noObserver) Ended(string)                               {}
func (noObserver) Ran(berth.LogSource, string, time.Duration) {}

// ranAs is what an Observer is told of a command's outcome.
func ranAs(o berth.ShellOutcome) string {
	switch {
	case o.Type != "exit":
		return o.Type
	case o.ExitCode != nil && *o.ExitCode == 0:
		return "ok"
	}
	return "failed"
}

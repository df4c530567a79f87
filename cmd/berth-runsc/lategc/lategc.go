// Package lategc lets the processes of a starting sandbox start without garbage collection.
//
// They are seven, most of them end within milliseconds, and the sentry allocates some 10 MB before the guest
// runs and keeps most of it. Each of their first collections takes a millisecond or two, while all processors are
// busy. So there is none before a process uses memoryLimit, or Later ends the delay.
package lategc

import (
	"math"
	"os"
	"runtime/debug"
	"slices"
	"time"
)

const (
	percent     = 100 // Go's default
	memoryLimit = 64 << 20
	delay       = 2 * time.Second
)

// starting reports whether the process takes part in the start of a sandbox.
func starting(args []string) bool {
	return slices.ContainsFunc(args[1:], func(arg string) bool {
		return arg == "run" || arg == "gofer" || arg == "boot"
	})
}

func init() {
	if len(os.Args) > 0 && starting(os.Args) {
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(memoryLimit)
	}
}

// Later makes Go collect garbage as usual from some seconds on. A process that lives on must call it.
func Later() {
	if !starting(os.Args) {
		return
	}
	time.AfterFunc(delay, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(math.MaxInt64)
	})
}

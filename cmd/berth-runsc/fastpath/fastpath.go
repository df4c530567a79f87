// Package fastpath lets the systrap platform of an idle sandbox sleep.
//
// gVisor decides every 400 µs whether its threads shall spin for the next system
// call or sleep. It does so as well when there were no system calls to decide by,
// in each sandbox, for ever: 2500 wake-ups a second, 4 % of a processor. Here the
// same decisions are made by the same functions, but none after some periods in which
// nothing was measured, until a program makes a system call. Without measurements
// decisions change nothing.
//
// The package replaces the goroutine that gVisor starts once (controlFastPath of
// package systrap) and names unexported variables of that package, whose layout is
// that of the pinned version. The test fails when it is another.
package fastpath

import (
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/hostarch"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap"

	"github.com/berth-run/berth/cmd/berth-runsc/rest"
)

const (
	period    = 400 * time.Microsecond // gVisor's recordingPeriod
	idleAfter = 10                     // periods without a measurement
)

// buckets count latencies.
type buckets [80]atomicbitops.Uint64

// recorder holds the measurements since the last decision that used them.
type recorder struct{ stub, sentry buckets }

func (r *recorder) total() (n uint64) {
	for i := range r.stub {
		n += r.stub[i].Load() + r.sentry[i].Load()
	}
	return n
}

// state is gVisor's fastPathState.
type state struct {
	stubBaseline, sentryBaseline       buckets
	stubBackoff, sentryBackoff         int
	stubFailures, sentryFailures       int
	stubConsecutive, sentryConsecutive int
	_                                  [hostarch.CacheLineSize]byte
	stubEnabled                        atomicbitops.Bool
	_                                  [hostarch.CacheLineSize]byte
	sentryEnabled                      atomicbitops.Bool
	_                                  [hostarch.CacheLineSize]byte
	awake                              atomicbitops.Uint32
	_                                  [hostarch.CacheLineSize]byte
	usedStub                           atomicbitops.Bool
	_                                  [hostarch.CacheLineSize]byte
	usedSentry                         atomicbitops.Bool
	_                                  [hostarch.CacheLineSize]byte
	decide                             func(*state)
}

//go:linkname fastpath gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastpath
var fastpath state

//go:linkname latencies gvisor.dev/gvisor/pkg/sentry/platform/systrap.latencies
var latencies recorder

//go:linkname latencyMonitoring gvisor.dev/gvisor/pkg/sentry/platform/systrap.latencyMonitoring
var latencyMonitoring sync.Once

//go:linkname contextLimit gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastPathContextLimit
var contextLimit uint32

//go:linkname maxThreads gvisor.dev/gvisor/pkg/sentry/platform/systrap.maxSysmsgThreads
var maxThreads int

// backoffMin is the value of both backoffs before the first decision.
const backoffMin = 2

// Control replaces gVisor's control goroutine in the process of a sandbox. It must be called before the
// platform is created. It changes nothing if gVisor's variables do not have their expected values.
func Control() {
	if !known() {
		return
	}
	latencyMonitoring.Do(func() { go control() })
}

// known reports whether the variables have their values before the first decision.
func known() bool {
	return fastpath.stubBackoff == backoffMin && fastpath.sentryBackoff == backoffMin && fastpath.decide != nil &&
		latencies.total() == 0
}

func control() {
	for maxThreads == 0 { // the platform is not created yet
		time.Sleep(10 * time.Millisecond)
	}
	contextLimit = uint32(maxThreads * 2)
	for idle := 0; ; {
		time.Sleep(period)
		if idle++; decide() {
			idle = 0
		}
		if idle == idleAfter {
			rest.UntilSystemCall()
			idle = 0
		}
	}
}

// left is the number of measurements that the last decision did not use, because it needed more. Owned by
// control.
var left uint64

// decide runs gVisor's decision, and reports whether anything was measured since the
// last decision.
func decide() (measured bool) {
	measured = latencies.total() != left
	fastpath.decide(&fastpath)
	fastpath.usedStub.Store(false)
	fastpath.usedSentry.Store(false)
	left = latencies.total()
	return measured
}

// Package rest makes an idle process of a sandbox use less: it notices when no program makes a
// system call, and then returns memory to the host.
package rest

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// releaseAfter is the time without a system call after which memory is returned to the host. It
// takes some milliseconds of CPU time.
const releaseAfter = 10 * time.Second

var (
	resting atomic.Bool              // UntilSystemCall waits
	called  = make(chan struct{}, 1) // a system call was made
)

// Notice makes system calls noticed in the process of a sandbox. It must be called before the
// sandbox is created.
func Notice() {
	for _, table := range []*kernel.SyscallTable{syscalls.AMD64, syscalls.ARM64} {
		for number, call := range table.Table {
			if call.Fn != nil {
				call.Fn = noticed(call.Fn)
				table.Table[number] = call
			}
		}
		table.Init()
	}
}

// noticed wraps a system call. The result ends UntilSystemCall.
func noticed(call kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if resting.Load() {
			select {
			case called <- struct{}{}:
			default:
			}
		}
		return call(t, number, args)
	}
}

// UntilSystemCall returns when a program in the sandbox makes a system call. System calls that
// have begun do not count. It must not be called twice concurrently.
func UntilSystemCall() {
	select {
	case <-called:
	default:
	}
	resting.Store(true)
	defer resting.Store(false)
	release := time.NewTimer(releaseAfter)
	defer release.Stop()
	select {
	case <-called:
		return
	case <-release.C:
	}
	debug.FreeOSMemory()
	<-called
}

// settleAfter is the time after the start of a gofer after which it returns the memory that its
// start needed to the host: later than package lategc sets how often garbage is collected.
const settleAfter = 3 * time.Second

// Settle returns memory to the host after the start of a process that does little later, and then
// collects garbage more often.
func Settle() {
	time.AfterFunc(settleAfter, func() {
		debug.SetGCPercent(25)
		debug.FreeOSMemory()
	})
}

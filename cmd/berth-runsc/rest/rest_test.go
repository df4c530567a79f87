package rest

import (
	"testing"
	"testing/synctest"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// Notice wraps the system calls that gVisor implements. It adds none.
func TestNotice(t *testing.T) {
	before := map[uintptr]bool{}
	for number, call := range syscalls.AMD64.Table {
		before[number] = call.Fn != nil
	}
	Notice()
	for number, implemented := range before {
		if got := syscalls.AMD64.Lookup(number) != nil; got != implemented {
			t.Errorf("system call %d: implemented: %v, before: %v", number, got, implemented)
		}
	}
}

// A system call ends the rest, also after memory was returned. One before the rest does not.
func TestUntilSystemCall(t *testing.T) {
	call := noticed(func(*kernel.Task, uintptr, arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return 7, nil, nil
	})
	synctest.Test(t, func(t *testing.T) {
		called = make(chan struct{}, 1) // of this bubble
		called <- struct{}{}            // left over
		for i := range 3 {
			ended := make(chan struct{})
			go func() { UntilSystemCall(); close(ended) }()
			synctest.Wait()
			select {
			case <-ended:
				t.Fatal("ended without a system call")
			default:
			}
			if i == 1 {
				time.Sleep(2 * releaseAfter)
			}
			if got, _, err := call(nil, 0, arch.SyscallArguments{}); got != 7 || err != nil {
				t.Errorf("got %d, %v", got, err)
			}
			<-ended
			if resting.Load() {
				t.Error("still resting")
			}
		}
	})
}

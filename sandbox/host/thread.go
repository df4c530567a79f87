package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs f on a new operating system thread that ends afterwards. It never uses the
// process's first thread, which does not end, and whose cgroup is charged for the memory of the
// whole process.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- OnOwnThread(f) // while this goroutine holds the first thread
			runtime.UnlockOSThread()
			return
		}
		done <- f()
		// The thread is still locked, so the runtime ends it.
	}()
	return <-done
}

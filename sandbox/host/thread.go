package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs f on an operating system thread that ends with it. The
// process's first thread is never used: it does not end, and its cgroup is the
// one that the memory of the whole process is charged to.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- OnOwnThread(f) // while this goroutine keeps the first thread
			runtime.UnlockOSThread()
			return
		}
		done <- f()
		// Still locked, so the runtime ends the thread.
	}()
	return <-done
}

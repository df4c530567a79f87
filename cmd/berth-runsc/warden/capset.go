package warden

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capset clears the capability sets of all threads.
func capset() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&none)), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&none)
	if errno != 0 {
		return errno
	}
	return nil
}

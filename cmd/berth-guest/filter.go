package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/berth-run/berth/guest/boot"
)

// filterEnv makes the guest filter the system calls of the sandbox. The process must have no new
// privileges.
const filterEnv = "BERTH_FILTER"

// filter starts this program again, filtered. It returns only an error.
func filter() error {
	runtime.LockOSThread() // filters belong to threads, and exec uses this one's
	if err := boot.FilterCalls(); err != nil {
		return err
	}
	if err := os.Unsetenv(filterEnv); err != nil {
		return err
	}
	return fmt.Errorf("start filtered: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

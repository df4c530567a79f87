package main

import (
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The real-time signals that are programs' own.
const firstRealTime, lastRealTime unix.Signal = 34, 64

// catchSignals makes PID 1 survive signals to an init: only its end from outside
// ends it. Signals are caught, not ignored: every command would inherit that, and kill
// would end none.
//
// The runtime has a handler for each signal, and each new process takes back each of
// them by a system call of its own, which is most of what there is to do between clone
// and execve, and slow in gVisor. An init gets no real-time signals: those 31
// have no handler.
func catchSignals() {
	caught := make(chan os.Signal, 1)
	for s := unix.Signal(1); s < firstRealTime; s++ {
		if s != unix.SIGURG && s != unix.SIGCHLD { // the runtime's own, and the reaper's
			signal.Notify(caught, s)
		}
	}
	for s := firstRealTime; s <= lastRealTime; s++ {
		signal.Ignore(s) // by which the runtime forgets its handler
		setDefault(s)    // which commands may inherit
	}
}

// catchIgnored catches the signals that this process inherited as ignored, from nohup for example.
// Commands would inherit that, too, and signals to them have no effect.
func catchIgnored() {
	caught := make(chan os.Signal, 1)
	for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGINT} { // the runtime catches the others
		if signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
}

// setDefault sets a signal's action to the default, without the runtime's knowledge.
func setDefault(s unix.Signal) {
	var action [4]uint64 // handler, flags, restorer, mask
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

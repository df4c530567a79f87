// Package faststart saves each process of a sandbox one wait for the kernel.
//
// A package of gVisor registers for private expedited memory barriers while it
// is initialised (membarrier(2), REGISTER_PRIVATE_EXPEDITED). In a process with
// several threads, and a Go process has them by then, the kernel answers after
// an RCU grace period: 8–12 ms in each of the five processes that start one
// after the other, 120 ms → 85 ms from nothing to the first answer on a 2-core
// machine. The systrap platform never issues such a barrier, it uses the global
// one. A seccomp filter therefore answers the registration with success without
// performing it; every other system call passes, and children inherit it.
//
// The package must be initialised before gVisor's. Go initialises packages that
// are ready in the order of their import paths, and github.com/berth-run comes
// before gvisor.dev. If that ever fails, start-up is slower and nothing else.
package faststart

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// registerPrivateExpedited is MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED.
const registerPrivateExpedited = 1 << 4

// Offsets in struct seccomp_data, little endian.
const (
	offNR      = 0
	offArg0Low = 16
)

func init() {
	// The kernel refuses this command with a flag, immediately; the filter, when
	// it was inherited, does not look at flags.
	if _, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, registerPrivateExpedited, 1, 0); errno == 0 {
		return
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offNR},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_MEMBARRIER, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offArg0Low},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: registerPrivateExpedited, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO}, // errno 0
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// It fails without CAP_SYS_ADMIN, which is as good as not trying.
	unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
}

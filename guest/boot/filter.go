package boot

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are system calls that no command needs and that had exploitable bugs.
var refused = []uint32{
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
}

// Offsets in a filter's input (struct seccomp_data): the number of the system call and
// its architecture.
const (
	numberOffset = 0
	archOffset   = 4
	familyOffset = 16 // the low half of the first argument
)

// families are families of sockets that the filter refuses: they reach the machine that runs a
// sandbox, or code of its kernel that no command needs.
var families = []uint32{unix.AF_VSOCK, unix.AF_ALG}

// foreignBit is in the numbers of the x32 variant of x86-64's system calls.
const foreignBit = 1 << 30

var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// filter returns a BPF program that refuses these system calls and kills programs of other
// architectures, such as 32-bit ones, because their system calls have other numbers.
func filter() []unix.SockFilter {
	const refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	give := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	program := []unix.SockFilter{
		load(archOffset),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: architectures[runtime.GOARCH], Jt: 1},
		give(unix.SECCOMP_RET_KILL_PROCESS),
		load(numberOffset),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: foreignBit, Jf: 1},
		give(refuse),
	}
	for _, number := range refused {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
			give(refuse))
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET,
		Jf: uint8(1 + 2*len(families))}, load(familyOffset))
	for _, family := range families {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: family, Jf: 1},
			give(refuse))
	}
	return append(program, give(unix.SECCOMP_RET_ALLOW))
}

// FilterCalls filters the system calls of the calling thread and of its descendants.
func FilterCalls() error {
	program := filter()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0,
		0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

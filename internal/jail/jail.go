// Package jail lets a process give up what it does not need before it touches untrusted
// input.
package jail

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unprivileged is the user of a process that was started by root.
const unprivileged = 65534

// Limits are what a process may still use.
type Limits struct {
	CPU    int    // seconds that it may compute
	Memory uint64 // bytes
}

// Enter gives up the process's privileges, for ever and in all of its threads: no files, no
// network, no other processes, and bounded memory and time to compute. It may still read and
// write the open ones.
func Enter(l Limits) error {
	size, err := addressSpace()
	if err != nil {
		return err
	}
	// The kernel lets one mapping over reserved addresses exceed RLIMIT_DATA, and the Go runtime
	// reserves addresses before it uses them. So the reservations are limited as well.
	for resource, most := range map[int]uint64{
		unix.RLIMIT_CPU: uint64(l.CPU), unix.RLIMIT_DATA: l.Memory, unix.RLIMIT_AS: size + l.Memory,
		unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 64, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit resource %d: %w", resource, err)
		}
	}
	if os.Getuid() == 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("drop groups: %w", err)
		}
		if err := syscall.Setgid(unprivileged); err != nil {
			return fmt.Errorf("drop group: %w", err)
		}
		if err := syscall.Setuid(unprivileged); err != nil {
			return fmt.Errorf("drop user: %w", err)
		}
	}
	return filterCalls()
}

// Command returns a command that runs a program which is to enter a jail with args; the
// default is this program. It starts without environment and on one processor, collects
// garbage before it reaches the memory of its jail, and ends with this process.
func Command(ctx context.Context, program string, memory uint64, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cmp.Or(program, "/proc/self/exe"), args...)
	cmd.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", memory/4*3), "GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// addressSpace returns the size of the process's address space in bytes. The Go runtime has reserved
// most of it, and does not use it.
func addressSpace() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("measure address space: %w", err)
	}
	pages, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("measure address space: %w", err)
	}
	return n * uint64(os.Getpagesize()), nil
}

// calls are the system calls that the Go runtime needs to compute, and to read and write
// open files. All others fail with EPERM, except clone3.
var calls = append([]uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_FCNTL,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_BRK,
	unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_CLONE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
	unix.SYS_MEMBARRIER,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL,
	unix.SYS_RESTART_SYSCALL,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME,
	unix.SYS_GETTIMEOFDAY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_PRCTL,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
}, archCalls...)

// filterCalls installs calls as a filter of the process. The filter compares the number of
// a call only: the kernel refuses other architectures' calls by their first comparison.
func filterCalls() error {
	runtime.LockOSThread() // no_new_privs is an attribute of a thread, which the filter then copies to the others
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equals = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{
		{Code: load, K: 4}, // seccomp_data.arch
		{Code: equals, K: auditArch, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: 0}, // seccomp_data.nr
	}
	for _, n := range calls {
		program = append(program, unix.SockFilter{Code: equals, K: n, Jf: 1}, unix.SockFilter{Code: answer,
			K: unix.SECCOMP_RET_ALLOW})
	}
	program = append(program,
		// The C library, which builds with the race detector use, then creates threads by clone.
		unix.SockFilter{Code: equals, K: unix.SYS_CLONE3, Jf: 1}, unix.SockFilter{Code: answer,
			K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&filter)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}

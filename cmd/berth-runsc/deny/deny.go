// Package deny refuses programs in a sandbox what none of them needs: user namespaces and
// device nodes.
//
// In a user namespace of its own an ordinary user has every capability, among them those
// to mount file systems, to make network devices and to load packet filters: code of the
// sentry that is not reached without. The pinned gVisor knows no max_user_namespaces, and
// its seccomp filters can refuse clone3 with EPERM only, after which libraries do not fall
// back to clone. It also lets every user make nodes of devices, FUSE's and the TUN's among
// them, without asking for CAP_MKNOD. So the system calls are replaced in gVisor's table.
package deny

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// Apply changes the system calls of this process's sandbox. It must be called before the
// sandbox is made.
func Apply() {
	for _, table := range []*kernel.SyscallTable{syscalls.AMD64, syscalls.ARM64} {
		for number, call := range table.Table {
			if replace := replaced[call.Name]; replace != nil {
				call.Fn = replace(call.Fn)
				table.Table[number] = call
			}
		}
		table.Init()
	}
}

// replaced are the system calls that are not as gVisor has them.
var replaced = map[string]func(kernel.SyscallFn) kernel.SyscallFn{
	"clone":   withoutUser,
	"unshare": withoutUser,
	"clone3":  absent,
	"mknod":   func(call kernel.SyscallFn) kernel.SyscallFn { return withoutDevices(call, 1) },
	"mknodat": func(call kernel.SyscallFn) kernel.SyscallFn { return withoutDevices(call, 2) },
}

// withoutUser returns a system call whose first argument are the flags of clone, and
// which makes no user namespaces.
func withoutUser(call kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Uint64()&linux.CLONE_NEWUSER != 0 {
			return 0, nil, linuxerr.EPERM
		}
		return call(t, number, args)
	}
}

// absent is for clone3, whose flags are in the caller's memory: another thread may change
// them after they were checked. Libraries use clone where there is no clone3.
func absent(kernel.SyscallFn) kernel.SyscallFn {
	return func(*kernel.Task, uintptr, arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return 0, nil, linuxerr.ENOSYS
	}
}

// withoutDevices returns a system call that makes files, of the type and mode that an
// argument says, but no devices.
func withoutDevices(call kernel.SyscallFn, mode int) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		switch args[mode].ModeT() & linux.S_IFMT {
		case linux.S_IFCHR, linux.S_IFBLK:
			return 0, nil, linuxerr.EPERM
		}
		return call(t, number, args)
	}
}

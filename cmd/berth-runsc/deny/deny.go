// Package deny refuses two features to programs in a sandbox that none of them needs: user namespaces
// and device nodes.
//
// In its own user namespace, an ordinary user has every capability, among them those to mount file
// systems, create network devices and load packet filters, which reach code of the sentry that is
// otherwise unreachable. The pinned gVisor does not support max_user_namespaces, and its seccomp filters
// can only refuse clone3 with EPERM, after which libraries do not fall back to clone. It also lets every
// user create device nodes, including FUSE's and TUN's, without checking CAP_MKNOD. So this package
// replaces the system calls in gVisor's table.
package deny

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// Apply replaces the system calls for this process's sandbox. It must be called before the sandbox is
// created.
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

// replaced are the system calls that differ from gVisor's.
var replaced = map[string]func(kernel.SyscallFn) kernel.SyscallFn{
	"clone":   withoutUser,
	"unshare": withoutUser,
	"clone3":  absent,
	"mknod":   func(call kernel.SyscallFn) kernel.SyscallFn { return withoutDevices(call, 1) },
	"mknodat": func(call kernel.SyscallFn) kernel.SyscallFn { return withoutDevices(call, 2) },
}

// withoutUser wraps a system call whose first argument is the flags of clone. The result refuses to
// create user namespaces.
func withoutUser(call kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Uint64()&linux.CLONE_NEWUSER != 0 {
			return 0, nil, linuxerr.EPERM
		}
		return call(t, number, args)
	}
}

// absent makes clone3 return ENOSYS. Its flags are in the caller's memory, where another thread may change
// them after a check. Libraries then fall back to clone.
func absent(kernel.SyscallFn) kernel.SyscallFn {
	return func(*kernel.Task, uintptr, arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return 0, nil, linuxerr.ENOSYS
	}
}

// withoutDevices wraps a system call that creates files, with the type and mode in an argument. The result
// refuses to create devices.
func withoutDevices(call kernel.SyscallFn, mode int) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		switch args[mode].ModeT() & linux.S_IFMT {
		case linux.S_IFCHR, linux.S_IFBLK:
			return 0, nil, linuxerr.EPERM
		}
		return call(t, number, args)
	}
}

package jail

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

var archCalls = []uint32{unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL, unix.SYS_GETRLIMIT}

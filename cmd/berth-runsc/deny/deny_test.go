package deny

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// Apply refuses all system calls of the pinned gVisor that create user namespaces or devices.
func TestApply(t *testing.T) {
	Apply()
	device := arch.SyscallArguments{{}, {Value: unix.S_IFCHR | 0o666}, {Value: unix.S_IFBLK | 0o666}}
	user := arch.SyscallArguments{{Value: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}}
	for _, c := range []struct {
		table *kernel.SyscallTable
		calls map[string]arch.SyscallArguments
	}{
		{syscalls.AMD64, map[string]arch.SyscallArguments{"clone": user, "unshare": user, "clone3": user,
			"mknod": device, "mknodat": device}},
		{syscalls.ARM64, map[string]arch.SyscallArguments{"clone": user, "unshare": user, "clone3": user,
			"mknodat": device}},
	} {
		refused := 0
		for number, call := range c.table.Table {
			args, ok := c.calls[call.Name]
			if !ok {
				continue
			}
			refused++
			want := error(linuxerr.EPERM)
			if call.Name == "clone3" {
				want = linuxerr.ENOSYS
			}
			if _, _, err := c.table.Lookup(number)(nil, number, args); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", call.Name, err, want)
			}
		}
		if refused != len(c.calls) {
			t.Errorf("%v: %d of %d system calls refused", c.table.Arch, refused, len(c.calls))
		}
	}
}

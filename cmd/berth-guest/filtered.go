package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// filtered returns an error if the kernel handles system calls that a seccomp filter must refuse. A
// kernel without these calls returns another error than a filter.
func filtered() error {
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"io_uring_setup", func() error {
			_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
			return errno
		}},
		{"userfaultfd", func() error {
			_, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, ^uintptr(0), 0, 0)
			return errno
		}},
		{"bpf", func() error {
			_, _, errno := unix.Syscall(unix.SYS_BPF, ^uintptr(0), 0, 0)
			return errno
		}},
		{"keyctl", func() error {
			_, _, errno := unix.Syscall(unix.SYS_KEYCTL, ^uintptr(0), 0, 0)
			return errno
		}},
		{"socket of AF_VSOCK", func() error { return trySocket(unix.AF_VSOCK) }},
		{"socket of AF_ALG", func() error { return trySocket(unix.AF_ALG) }},
	} {
		if err := call.do(); !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%s is not filtered: %w", call.name, err)
		}
	}
	return nil
}

// trySocket creates a socket of a type that no family supports.
func trySocket(family int) error {
	_, err := unix.Socket(family, 0xf, 0)
	return err
}

// Package microvm runs sandboxes as virtual machines of QEMU.
//
// A sandbox is one process: QEMU, with Debian's kernel for clouds, an initial file
// system of ours (package guest/boot), the template as a read-only disk, and
// a disk for what the sandbox writes. The server reaches the guest through serial
// ports (package guest/serial); the machine has no network card. All state is on
// disk and in the kernel, none in this process:
//
//	StateDir/
//	  instance             names the cgroups of this state directory
//	  initramfs/HASH       the initial file system, by what is in it
//	  root/                empty; the root of each QEMU is mounted here, for it alone
//	  sandboxes/ID/        there as long as the sandbox is
//	    sandbox.json       what it was made from
//	    sealed/            encrypted with a key that only the kernel has, if it can
//	      disk             what it writes: a sparse ext4 image
//	    pid                QEMU's process id
//	    paused             there while it is paused
//	    run/               sockets, which QEMU has open and cannot see
//	ImageDir/KEY           templates as disk images, shared by all sandboxes
//
// plus one cgroup berth-INSTANCE/ID in each hierarchy.
//
// QEMU itself is not trusted with the host: it runs as a user of its own without
// capabilities, under its seccomp filter, in namespaces of its own, with a root that
// holds its program and nothing to write. What a sandbox shares with the host is shown to
// it by a second process, virtiofsd, behind walls of its own (share.go).
package microvm

// Package microvm runs sandboxes as virtual machines of QEMU.
//
// A sandbox is one process: QEMU, with Debian's kernel for clouds, Berth's initial file system
// (package guest/boot), the template as a read-only disk, and a disk for the files that the
// sandbox writes. The server reaches the guest through serial ports (package guest/serial); the
// machine has no network card. All state is on disk and in the kernel, none in this process:
//
//	StateDir/
//	  instance             names the cgroups of this state directory
//	  initramfs/HASH       the initial file system, by its content
//	  root/                empty; mount point of each QEMU's root, for that QEMU only
//	  sandboxes/ID/        exists until the sandbox is destroyed
//	    sandbox.json       the Spec and where its parts are
//	    sealed/            encrypted with a key that only the kernel has, if supported
//	      disk             the sandbox's disk: a sparse ext4 image
//	    pid                QEMU's process id
//	    paused             exists while the sandbox is paused
//	    run/               sockets, which QEMU has open and cannot see
//	ImageDir/KEY           templates as disk images, shared by all sandboxes
//
// plus one cgroup berth-INSTANCE/ID in each hierarchy.
//
// QEMU itself is not trusted with the host: it runs as its own user without capabilities, under
// its seccomp filter, in its own namespaces, with a read-only root that contains only its
// program. A second process, virtiofsd, confined in the same way, serves the directories that a
// sandbox shares with the host (share.go).
package microvm

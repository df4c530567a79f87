package microvm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// checkMachine returns an error that names the first requirement that this machine does not
// meet, and makes the paths of opts absolute. host.FindHierarchy checks cgroups, and
// chooseMachine KVM.
func checkMachine(opts *Options) error {
	if opts.StateDir == "" {
		return errors.New("no state directory given")
	}
	if os.Geteuid() != 0 {
		return errors.New("must be root, to create namespaces, mounts and cgroups")
	}
	var err error
	if opts.QEMUPath, err = FindQEMU(opts.QEMUPath); err != nil {
		return err
	}
	if _, err := exec.LookPath("mke2fs"); err != nil {
		return fmt.Errorf("find mkfs.ext4: %w (Debian has it in e2fsprogs)", err)
	}
	if opts.GuestPath, err = filepath.Abs(opts.GuestPath); err != nil {
		return err
	}
	if fi, err := os.Stat(opts.GuestPath); err != nil {
		return fmt.Errorf("guest program: %w", err)
	} else if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("guest program: %s is not executable", opts.GuestPath)
	}
	switch opts.Accel {
	case "", "kvm", "tcg":
		return nil
	}
	return fmt.Errorf("accel %q: must be kvm, tcg or empty", opts.Accel)
}

// FindQEMU returns the path of the QEMU program, without symbolic links. If path is empty, it
// searches for the program.
func FindQEMU(path string) (string, error) {
	if path == "" {
		found, err := exec.LookPath("qemu-system-x86_64")
		if err != nil {
			return "", fmt.Errorf("%w (Debian has it in qemu-system-x86)", err)
		}
		path = found
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

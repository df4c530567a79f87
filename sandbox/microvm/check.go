package microvm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// checkMachine returns an error that names the first thing which this machine
// lacks, and makes the paths of opts absolute. Cgroups are looked at by
// host.FindHierarchy, KVM by chooseMachine.
func checkMachine(opts *Options) error {
	if opts.StateDir == "" {
		return errors.New("no state directory given")
	}
	if os.Geteuid() != 0 {
		return errors.New("must be root, to make namespaces, mounts and cgroups")
	}
	var err error
	if opts.QEMUPath, err = FindQEMU(opts.QEMUPath); err != nil {
		return err
	}
	if _, err := exec.LookPath("mke2fs"); err != nil {
		return fmt.Errorf("making disks: %w (Debian has it in e2fsprogs)", err)
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
	return fmt.Errorf("accel %q: it is kvm, tcg or empty", opts.Accel)
}

// FindQEMU returns the path of the program that runs machines, without symbolic links.
// With an empty path it is looked for.
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

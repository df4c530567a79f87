package gvisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// checkMachine returns an error that names the first requirement that this machine does not
// meet. host.FindHierarchy checks cgroups.
func checkMachine(opts Options) error {
	if opts.StateDir == "" {
		return errors.New("no state directory given")
	}
	if err := checkProgram("runsc", opts.RunscPath); err != nil {
		return err
	}
	if err := checkProgram("guest", opts.GuestPath); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return CheckUser()
	}
	// A sandbox gets its template through a read-only overlay.
	raw, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), "\toverlay\n") {
		return errors.New("the kernel has no overlayfs; try: modprobe overlay")
	}
	return nil
}

// CheckUser returns an error, for the operator, if this process, which is not root, cannot
// create the namespaces of a sandbox.
func CheckUser() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Path = "/dev/null" // it cannot be executed: this tests everything before that
	cmd.SysProcAttr = userNamespaces()
	err := cmd.Run()
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	return noNamespaces(err)
}

// checkProgram returns an error unless path is an executable file.
func checkProgram(what, path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s program: %w", what, err)
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s program: %s is not executable", what, path)
	}
	return nil
}

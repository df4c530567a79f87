package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-run/berth/sandbox/gvisor"
)

// sandboxesIn returns the ids of the sandboxes below a server's or a driver's state
// directory.
func sandboxesIn(state string) []string {
	dirs, _ := filepath.Glob(filepath.Join(state, "gvisor", "sandboxes", "*"))
	for i, dir := range dirs {
		dirs[i] = filepath.Base(dir)
	}
	return dirs
}

// openDriver opens the gVisor driver on a state directory as a server has it.
func (b *bench) openDriver(state string) (*gvisor.Driver, error) {
	return gvisor.Open(gvisor.Options{StateDir: filepath.Join(state, "gvisor"), RunscPath: filepath.Join(b.bin,
		"berth-runsc"),
		GuestPath: filepath.Join(b.bin, "berth-guest"), Logger: slog.New(slog.DiscardHandler)})
}

// cleanUp removes all that this run has made, or that one which was killed has left:
// servers, sandboxes, files. It looks whether mounts remain.
func (b *bench) cleanUp() error {
	states, err := filepath.Glob(filepath.Join(b.state, "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, state := range states {
		errs = append(errs, endServer(state), endPeer(state), b.destroyAll(state), removeGroups(state))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if bytes.Contains(mounts, []byte(b.state+"/")) {
		return fmt.Errorf("something is still mounted below %s", b.state)
	}
	return os.RemoveAll(b.state)
}

// removeGroups removes the control groups that held those of a state directory's
// sandboxes.
func removeGroups(state string) error {
	raw, err := os.ReadFile(filepath.Join(state, "gvisor", "instance"))
	if err != nil {
		return nil // it had none
	}
	name := "berth-" + strings.TrimSpace(string(raw))
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // of version 2, of version 1
		dirs, _ := filepath.Glob(filepath.Join(pattern, name))
		for _, dir := range dirs {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// endServer ends the server that holds a state directory's lock, if there is one.
func endServer(state string) error {
	raw, err := os.ReadFile(filepath.Join(state, "lock"))
	if err != nil {
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || !serves(pid, state) {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	for deadline := time.Now().Add(stopTime); serves(pid, state); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the server with process id %d does not end", pid)
		}
	}
	return nil
}

// serves reports whether a process is a server on a state directory.
func serves(pid int, state string) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(args, []byte("\x00serve\x00")) &&
		bytes.Contains(args, []byte("\x00"+state+"\x00"))
}

// destroyAll destroys all sandboxes of a state directory that no server has.
func (b *bench) destroyAll(state string) error {
	ids := sandboxesIn(state)
	if len(ids) == 0 {
		return nil
	}
	d, err := b.openDriver(state)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return errors.Join(atOnce(8, len(ids), func(i int) error { return d.Destroy(ctx, ids[i]) }).errs...)
}

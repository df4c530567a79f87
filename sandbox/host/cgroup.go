// Package host provides what drivers use to confine and find processes on the host: cgroups of
// either version, threads that enter namespaces for good, handles on processes, and encrypted
// directories.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// A Cgroup is the kernel's control group of one sandbox, in one or several directories. All
// host processes of the sandbox are started in it.
type Cgroup struct {
	v2      string            // directory in version 2, or ""
	unified bool              // v2 has the controllers, and v1 is empty
	v1      map[string]string // controller to directory; some share one
}

// CPUPeriod is the length in microseconds of the periods in which CPU time is allotted.
const CPUPeriod = 100_000

// dirs returns every directory of c once.
func (c Cgroup) dirs() []string {
	dirs := slices.Sorted(maps.Values(c.v1))
	if c.v2 != "" {
		dirs = append(dirs, c.v2)
	}
	return slices.Compact(dirs)
}

// Create creates the directories and sets the limits.
func (c Cgroup) Create(l sandbox.Limits, hostPIDs int) error {
	for _, dir := range c.dirs() {
		if err := makeGroup(dir); err != nil {
			return err
		}
	}
	quota := strconv.FormatInt(int64(math.Ceil(l.CPU*CPUPeriod)), 10)
	memory := strconv.FormatInt(l.Memory, 10)
	pids := strconv.Itoa(hostPIDs)

	if c.unified {
		// The first Create writes the parent's file.
		if err := enableControllers(filepath.Dir(c.v2)); err != nil {
			return err
		}
		return errors.Join(
			writeControl(c.v2, "memory.max", memory),
			ignoreMissing(writeControl(c.v2, "memory.swap.max", "0")),
			writeControl(c.v2, "cpu.max", fmt.Sprintf("%s %d", quota, CPUPeriod)),
			writeControl(c.v2, "pids.max", pids),
		)
	}
	return errors.Join(
		writeControl(c.v1["memory"], "memory.limit_in_bytes", memory),
		// This is the sum of memory and swap. The file is missing if swap is not counted.
		ignoreMissing(writeControl(c.v1["memory"], "memory.memsw.limit_in_bytes", memory)),
		writeControl(c.v1["cpu"], "cpu.cfs_period_us", strconv.Itoa(CPUPeriod)),
		writeControl(c.v1["cpu"], "cpu.cfs_quota_us", quota),
		writeControl(c.v1["pids"], "pids.max", pids),
	)
}

// makeGroup creates a group and its parent, which a concurrent Destroy may remove because it is
// empty.
func makeGroup(dir string) (err error) {
	for range 100 {
		if err = os.MkdirAll(dir, 0o755); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// Enter makes cmd start in the version 2 group, if there is one. The caller calls done when cmd
// has started or failed to.
func (c Cgroup) Enter(cmd *exec.Cmd) (done func(), err error) {
	if c.v2 == "" {
		return func() {}, nil
	}
	f, err := os.Open(c.v2)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = int(f.Fd())
	return func() { f.Close() }, nil
}

// JoinThread moves the calling thread, and the processes that it starts, into the version 1
// groups. For the version 2 group, clone3(2) is used instead, see Enter.
//
// "0" means the writer itself. Only for this form the kernel does not wait for an RCU grace
// period.
func (c Cgroup) JoinThread() error {
	for _, dir := range slices.Compact(slices.Sorted(maps.Values(c.v1))) {
		if err := writeControl(dir, "tasks", "0"); err != nil {
			return err
		}
	}
	return nil
}

// Procs returns the process ids in c, without zombies. A group that does not exist is empty.
func (c Cgroup) Procs() ([]int, error) {
	dir := c.v2
	if dir == "" {
		dir = c.v1["pids"]
	}
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil, nil
		}
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(string(raw)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Kill kills all processes in c and returns when they are dead, or ctx is done. Some kernels
// (6.18 among them) kill processes that are started in c afterwards: create c again for that.
func (c Cgroup) Kill(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		pids, err := c.Procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		if c.v2 == "" || writeControl(c.v2, "cgroup.kill", "1") != nil { // before Linux 5.14
			for _, pid := range pids {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end: %w", len(pids), context.Cause(ctx))
		case <-time.After(wait):
		}
		// If orphans are reparented to this process, it has to wait for them.
		for _, pid := range pids {
			unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// Remove removes the directories of c, which must be empty of processes, and after the last
// sandbox their parent.
func (c Cgroup) Remove(ctx context.Context) error {
	for _, dir := range c.dirs() {
		for {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, unix.EBUSY) { // while the kernel cleans up
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Millisecond):
			}
		}
		os.Remove(filepath.Dir(dir)) // fails while there are others
	}
	return nil
}

// ignoreMissing returns err unless it means that a file does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// FindIn returns the process whose number is in a file, and whether it is alive and in c. A
// missing or empty file proves its end only if c is empty.
func FindIn(c Cgroup, file string) (pid int, alive bool, err error) {
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, false, err
	}
	pids, err := c.Procs()
	if err != nil || len(pids) == 0 {
		return 0, false, err
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 0 {
		return 0, false, fmt.Errorf("%s has no process id, but the cgroup has %d processes", file, len(pids))
	}
	if !slices.Contains(pids, pid) {
		return 0, false, nil
	}
	ended, err := Ended(pid)
	return pid, err == nil && !ended, err
}

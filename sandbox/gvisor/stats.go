package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox/driver"
)

// Stats reports what the sandbox does and uses.
//
// A sandbox that is dead, and of which the kernel has killed a process because
// the memory limit was reached, is said to have died of it. That is so where the
// sentry was hit; where only a command was, the sandbox lived on, and if it ended
// later for another reason the answer is a guess.
func (d *Driver) Stats(_ context.Context, id string) (driver.Stats, error) {
	s, err := d.find(id)
	if err != nil {
		return driver.Stats{}, err
	}
	u := s.cgroup.Usage()
	stats := driver.Stats{CPU: u.CPU, Memory: u.Memory, MemoryPeak: u.Peak, PIDs: u.PIDs}

	rec, err := s.record()
	pid, alive := s.sentry()
	switch {
	case err != nil:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonKilled
	case rec.BootID != d.bootID:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonHost
	case !s.started():
		stats.State = driver.StateCreated
	case !alive && u.OOMKills > 0:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonOOM
	case !alive:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonKilled
	case s.paused():
		stats.State = driver.StatePaused
	default:
		stats.State = driver.StateRunning
	}
	if alive {
		stats.Disk = diskUsed(pid, s.path(sealed+"/disk"))
	}
	return stats, nil
}

// diskUsed returns the bytes on disk of the sandbox's writable layer: the file
// below dir that the sentry has open and that has no name any more. Its path is of
// little use, because the mount that it goes through is in no namespace any more.
func diskUsed(pid int, dir string) int64 {
	var volume unix.Stat_t
	if unix.Stat(dir, &volume) != nil {
		return 0
	}
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		link := filepath.Join(fds, e.Name())
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(filepath.Base(target), "runsc-filestore-") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(link, &st) == nil && st.Nlink == 0 && st.Dev == volume.Dev {
			return st.Blocks * 512
		}
	}
	return 0
}

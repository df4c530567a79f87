package microvm

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox/driver"
)

// Stats reports what the sandbox does and uses, as the host sees it: Memory is what the
// machine has touched and QEMU's own, PIDs are QEMU's threads.
//
// When memory is short in a machine, its own kernel ends processes. Only where QEMU
// itself was ended for the sake of the cgroup's limit the sandbox is said to have died
// of memory.
func (d *Driver) Stats(_ context.Context, id string) (driver.Stats, error) {
	s, err := d.find(id)
	if err != nil {
		return driver.Stats{}, err
	}
	u := s.cgroup.Usage()
	stats := driver.Stats{CPU: u.CPU, Memory: u.Memory, MemoryPeak: u.Peak, PIDs: u.PIDs}
	var st unix.Stat_t
	if unix.Stat(s.path(diskFile), &st) == nil {
		stats.Disk = st.Blocks * 512
	}
	rec, err := s.record()
	_, alive := s.qemu()
	switch {
	case err != nil:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonKilled
	case rec.BootID != d.bootID:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonHost
	case !s.exists("started"):
		stats.State = driver.StateCreated
	case !alive && u.OOMKills > 0:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonOOM
	case !alive:
		stats.State, stats.Reason = driver.StateDead, driver.ReasonKilled
	case s.exists("paused"):
		stats.State = driver.StatePaused
	default:
		stats.State = driver.StateRunning
	}
	return stats, nil
}

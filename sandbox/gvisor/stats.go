package gvisor

import (
	"context"

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
	alive, u := s.wall.alive(), s.wall.usage()
	stats := driver.Stats{CPU: u.CPU, Memory: u.Memory, MemoryPeak: u.Peak, PIDs: u.PIDs}
	if alive {
		stats.Disk = u.disk
	}

	rec, err := s.record()
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
	return stats, nil
}

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// Stats reports the state and resource use of the sandbox as the host sees it: Memory is the
// memory that the machine has touched plus QEMU's own, PIDs are QEMU's threads. A sandbox is
// dead only with proof: if the state cannot be read, Stats returns an error.
//
// When memory is short in a machine, its own kernel ends processes. The reason is oom only if
// QEMU itself was killed at the cgroup's limit.
func (d *Driver) Stats(_ context.Context, id string) (sandbox.Stats, error) {
	s, err := d.find(id)
	if err != nil {
		return sandbox.Stats{}, err
	}
	u := s.cgroup.Usage()
	stats := sandbox.Stats{CPU: u.CPU, Memory: u.Memory, MemoryPeak: u.Peak, PIDs: u.PIDs}
	var st unix.Stat_t
	if unix.Stat(s.path(diskFile), &st) == nil {
		stats.Disk = st.Blocks * 512
	}
	if stats.State, stats.Reason, err = d.state(s); err != nil {
		return sandbox.Stats{}, fmt.Errorf("microvm: stats %s: %w", id, err)
	}
	return stats, nil
}

// state returns the state of a sandbox, and the reason of its end if it has ended.
func (d *Driver) state(s instance) (sandbox.State, sandbox.Reason, error) {
	_, alive, err := s.qemu()
	if err != nil {
		return "", "", err
	}
	if alive {
		paused, err := s.exists("paused")
		if paused {
			return sandbox.StatePaused, "", nil
		}
		return sandbox.StateRunning, "", err
	}
	rec, err := s.record()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errGarbled):
		return sandbox.StateDead, sandbox.ReasonKilled, nil
	case err != nil:
		return "", "", err
	case rec.BootID != d.bootID:
		return sandbox.StateDead, sandbox.ReasonHost, nil
	}
	if started, err := s.exists("started"); err != nil || !started {
		return sandbox.StateCreated, "", err
	}
	kills, err := s.cgroup.OOMKills()
	if kills > 0 {
		return sandbox.StateDead, sandbox.ReasonOOM, nil
	}
	return sandbox.StateDead, sandbox.ReasonKilled, err
}

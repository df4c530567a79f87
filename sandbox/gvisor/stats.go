package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/berth-run/berth/sandbox"
)

// Stats reports the state and the resource use of the sandbox. A sandbox is dead only with
// proof: if the state cannot be read, as without a free descriptor, Stats returns an error.
//
// A dead sandbox in which the kernel killed a process at the memory limit has the reason oom.
// That is correct if the sentry was killed. If only a command was killed, the sandbox
// continued, and may have ended later for another reason.
func (d *Driver) Stats(_ context.Context, id string) (sandbox.Stats, error) {
	s, err := d.find(id)
	if err != nil {
		return sandbox.Stats{}, err
	}
	alive, err := s.wall.alive()
	if err != nil {
		return sandbox.Stats{}, fmt.Errorf("gvisor: stats %s: %w", id, err)
	}
	u := s.wall.usage()
	stats := sandbox.Stats{CPU: u.CPU, Memory: u.Memory, MemoryPeak: u.Peak, PIDs: u.PIDs}
	if alive {
		stats.Disk = u.disk
	}
	if stats.State, stats.Reason, err = d.state(s, alive); err != nil {
		return sandbox.Stats{}, fmt.Errorf("gvisor: stats %s: %w", id, err)
	}
	return stats, nil
}

// state returns the state of a sandbox whose processes are alive or not.
func (d *Driver) state(s instance, alive bool) (sandbox.State, sandbox.Reason, error) {
	if alive {
		paused, err := s.paused()
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
	if started, err := s.started(); err != nil || !started {
		return sandbox.StateCreated, "", err
	}
	oom, err := s.wall.oom()
	if oom {
		return sandbox.StateDead, sandbox.ReasonOOM, nil
	}
	return sandbox.StateDead, sandbox.ReasonKilled, err
}

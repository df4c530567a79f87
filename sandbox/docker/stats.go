package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox"
)

// lostExit is the exit code of a container whose end the engine did not see, because the
// machine or the engine was down.
const lostExit = 255

// maxStats bounds the engine's statistics of a container, in bytes.
const maxStats = 1 << 20

// Stats reports the state and resource use of the sandbox.
//
// A dead sandbox in which the kernel killed a process at the memory limit gets the reason oom,
// although it may have ended later for another reason. The disk use is counted file by file;
// for a while after a slow count, Stats returns that count.
func (d *Driver) Stats(ctx context.Context, id string) (sandbox.Stats, error) {
	name, err := d.container(id)
	if err != nil {
		return sandbox.Stats{}, fmt.Errorf("docker: stats: %w", err)
	}
	disk, due := d.disks.last(name)
	began := time.Now()
	c, err := d.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{Size: due})
	if errdefs.IsNotFound(err) {
		err = d.confirm(ctx, id, err)
	}
	if err != nil {
		return sandbox.Stats{}, d.wrap("stats", id, err)
	}
	if c.Container.State == nil {
		return sandbox.Stats{}, fmt.Errorf("docker: stats %s: the engine does not report its state", id)
	}
	stats, err := stateOf(c.Container.State)
	if err != nil {
		return sandbox.Stats{}, d.wrap("stats", id, err)
	}
	if c.Container.SizeRw != nil {
		disk = *c.Container.SizeRw
		d.disks.counted(name, disk, began)
	}
	stats.Disk = disk
	if stats.State == sandbox.StateRunning || stats.State == sandbox.StatePaused {
		if err := d.usage(ctx, name, &stats); err != nil {
			return sandbox.Stats{}, d.wrap("stats", id, err)
		}
	}
	return stats, nil
}

// stateOf translates the engine's container status. An unknown status is an error.
func stateOf(s *container.State) (sandbox.Stats, error) {
	switch s.Status {
	case container.StateRunning:
		return sandbox.Stats{State: sandbox.StateRunning}, nil
	case container.StatePaused:
		return sandbox.Stats{State: sandbox.StatePaused}, nil
	case container.StateCreated:
		if s.Error == "" {
			return sandbox.Stats{State: sandbox.StateCreated}, nil
		}
	case container.StateExited, container.StateDead, container.StateRemoving:
	default:
		return sandbox.Stats{}, fmt.Errorf("the engine reports the unknown status %.30q", s.Status)
	}
	switch {
	case s.OOMKilled:
		return sandbox.Stats{State: sandbox.StateDead, Reason: sandbox.ReasonOOM}, nil
	case s.ExitCode == lostExit:
		return sandbox.Stats{State: sandbox.StateDead, Reason: sandbox.ReasonHost}, nil
	}
	return sandbox.Stats{State: sandbox.StateDead, Reason: sandbox.ReasonKilled}, nil
}

// confirm returns an error other than ErrNotFound if the engine lists a sandbox that it just
// reported as missing: a proxy before the engine may answer 404.
func (d *Driver) confirm(ctx context.Context, id string, notFound error) error {
	ids, err := d.List(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(ids, id) {
		return fmt.Errorf("the engine lists it, but returns: %v", notFound)
	}
	return notFound
}

// usage reads the current resource use of a container.
func (d *Driver) usage(ctx context.Context, name string, stats *sandbox.Stats) error {
	r, err := d.client.ContainerStats(ctx, name, client.ContainerStatsOptions{})
	if err != nil {
		return fmt.Errorf("read stats: %w", err)
	}
	defer r.Body.Close()
	var u container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(r.Body, maxStats)).Decode(&u); err != nil {
		return fmt.Errorf("decode stats: %w", err)
	}
	stats.CPU = time.Duration(u.CPUStats.CPUUsage.TotalUsage)
	stats.PIDs = int(u.PidsStats.Current)
	// Reclaimable pages are not in use. The name of the figure depends on the version of the
	// control groups.
	cache, ok := u.MemoryStats.Stats["total_inactive_file"]
	if !ok {
		cache = u.MemoryStats.Stats["inactive_file"]
	}
	stats.Memory = max(0, int64(u.MemoryStats.Usage)-int64(cache))
	return nil
}

package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox/driver"
)

// lostExit is the exit code that the engine gives to a container of which it finds
// that it has ended, without having seen it: the machine went down, or the engine.
const lostExit = 255

// maxStats bounds what the engine may say of a container, in bytes.
const maxStats = 1 << 20

// Stats reports what the sandbox does and uses.
//
// One that is dead, and in which the kernel has killed a process because the memory
// limit was reached, is said to have died of it: it may have lived on then and ended
// later for another reason. What is on its disk is counted file by file, and for a
// while after a count that took long the figure is that one's.
func (d *Driver) Stats(ctx context.Context, id string) (driver.Stats, error) {
	name, err := d.container(id)
	if err != nil {
		return driver.Stats{}, fmt.Errorf("docker: stats: %w", err)
	}
	disk, due := d.disks.last(name)
	began := time.Now()
	c, err := d.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{Size: due})
	if err != nil {
		return driver.Stats{}, d.wrap("stats", id, err)
	}
	if c.Container.State == nil {
		return driver.Stats{}, fmt.Errorf("docker: stats %s: the engine does not tell its state", id)
	}
	stats := stateOf(c.Container.State)
	if c.Container.SizeRw != nil {
		disk = *c.Container.SizeRw
		d.disks.counted(name, disk, began)
	}
	stats.Disk = disk
	if stats.State == driver.StateRunning || stats.State == driver.StatePaused {
		if err := d.usage(ctx, name, &stats); err != nil {
			return driver.Stats{}, d.wrap("stats", id, err)
		}
	}
	return stats, nil
}

// stateOf translates the engine's word for what a container does.
func stateOf(s *container.State) driver.Stats {
	switch {
	case s.Status == container.StateRunning:
		return driver.Stats{State: driver.StateRunning}
	case s.Status == container.StatePaused:
		return driver.Stats{State: driver.StatePaused}
	case s.Status == container.StateCreated && s.Error == "":
		return driver.Stats{State: driver.StateCreated}
	case s.OOMKilled:
		return driver.Stats{State: driver.StateDead, Reason: driver.ReasonOOM}
	case s.ExitCode == lostExit:
		return driver.Stats{State: driver.StateDead, Reason: driver.ReasonHost}
	}
	return driver.Stats{State: driver.StateDead, Reason: driver.ReasonKilled}
}

// usage reads what a container uses now.
func (d *Driver) usage(ctx context.Context, name string, stats *driver.Stats) error {
	r, err := d.client.ContainerStats(ctx, name, client.ContainerStatsOptions{})
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var u container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(r.Body, maxStats)).Decode(&u); err != nil {
		return err
	}
	stats.CPU = time.Duration(u.CPUStats.CPUUsage.TotalUsage)
	stats.PIDs = int(u.PidsStats.Current)
	// Pages that the kernel would give up first are not in use. Their name depends
	// on the version of the control groups.
	cache, ok := u.MemoryStats.Stats["total_inactive_file"]
	if !ok {
		cache = u.MemoryStats.Stats["inactive_file"]
	}
	stats.Memory = max(0, int64(u.MemoryStats.Usage)-int64(cache))
	return nil
}

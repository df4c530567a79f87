package container

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
)

// meter reads the resource use of sandboxes.
type meter struct {
	opts  *Options
	index *index
}

func (m *meter) stats(ctx context.Context, s *instance) (*berth.ContainerStats, error) {
	limits := m.opts.limitsOf(s.body.MemoryLimit)
	now := m.opts.clock.Now()
	out := &berth.ContainerStats{Object: "container.stats", ContainerID: s.id, At: now.Unix(),
		UptimeSeconds: max(0, now.Unix()-s.body.CreatedAt),
		Memory:        berth.MemoryStats{LimitBytes: limits.Memory}, Disk: berth.DiskStats{LimitBytes: limits.Disk},
		PIDs: berth.PIDStats{Limit: limits.PIDs}}
	if n := s.network.Load(); n != nil {
		t := n.traffic.Totals()
		out.Egress = berth.EgressStats{BytesSent: t.Sent, BytesReceived: t.Received, Allowed: t.Allowed,
			Refused: t.Refused, Open: t.Open}
	}
	if !s.running() {
		return out, nil
	}
	read, err := m.read(ctx, s)
	if err != nil {
		return nil, err
	}
	out.CPUSeconds, out.Memory.Bytes, out.Disk.Bytes, out.PIDs.Count = read.CPU.Seconds(), read.Memory, read.Disk,
		read.PIDs
	out.Memory.PeakBytes = max(read.MemoryPeak, read.Memory)
	return out, nil
}

// sampleOf returns what a driver has read as a sample.
func sampleOf(s *instance, read sandbox.Stats, at time.Time) berth.StatsSample {
	out := berth.StatsSample{At: at.Unix(), CPUSeconds: read.CPU.Seconds(), MemoryBytes: read.Memory,
		DiskBytes: read.Disk}
	if n := s.network.Load(); n != nil {
		t := n.traffic.Totals()
		out.BytesSent, out.BytesReceived = t.Sent, t.Received
	}
	return out
}

// read returns the driver's stats of a sandbox.
func (m *meter) read(ctx context.Context, s *instance) (sandbox.Stats, error) {
	ctx, stop := s.withLife(ctx)
	defer stop()
	ctx, cancel := m.opts.clock.WithTimeout(ctx, statsTimeout)
	defer cancel()
	if err := s.driver.acquire(ctx); err != nil {
		return sandbox.Stats{}, err
	}
	defer s.driver.release()
	read, err := m.opts.Driver.Stats(ctx, string(s.id))
	if errors.Is(err, sandbox.ErrNotFound) {
		return read, nil // it is dying; the sweeper will find it dead
	}
	return read, err
}

// A Reading is the resource use of one running container.
type Reading struct {
	Project     berth.ProjectID
	MemoryLimit string // the tier
	Isolation   string
	Asleep      bool
	Stats       *berth.ContainerStats
}

func (m *meter) readings(ctx context.Context) []Reading {
	var mu sync.Mutex
	var all []Reading
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, s := range m.index.all() {
		if s.life.Err() != nil {
			continue
		}
		g.Go(func() error {
			if stats, err := m.stats(ctx, s); err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, Reading{s.project, s.body.MemoryLimit, s.body.Berth.Isolation, s.quiet.asleep.Load(),
					stats})
			}
			return nil
		})
	}
	_ = g.Wait()
	return all
}

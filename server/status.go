package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/store"
)

// statuses describes the state of the server. It is safe for concurrent use.
type statuses struct {
	started    time.Time
	running    func() int // responses
	containers *container.Service
	upstreams  func() []berth.Upstream
	space      *diskspace.Guard
	backup     func() *berth.BackupStatus // the last one

	completed, incomplete, failed, cancelled atomic.Int64
}

// atEnd counts a response that ends. It implements journal.AtEnd.
func (s *statuses) atEnd(_ *store.Response, final *berth.Response) []*store.Object {
	switch final.Status {
	case berth.StatusCompleted:
		s.completed.Add(1)
	case berth.StatusIncomplete:
		s.incomplete.Add(1)
	case berth.StatusFailed:
		s.failed.Add(1)
	case berth.StatusCancelled:
		s.cancelled.Add(1)
	}
	return nil
}

// get returns the present state.
func (s *statuses) get(ctx context.Context) *berth.ServerStatus {
	out := &berth.ServerStatus{At: time.Now().Unix(), StartedAt: s.started.Unix(), Upstreams: s.upstreams(),
		LastBackup: s.backup(), Pools: []berth.PoolStatus{}, Disk: []berth.DiskStatus{},
		Responses: berth.ResponseCounts{Running: s.running(), Completed: s.completed.Load(),
			Incomplete: s.incomplete.Load(), Failed: s.failed.Load(), Cancelled: s.cancelled.Load()}}
	if out.Upstreams == nil {
		out.Upstreams = []berth.Upstream{}
	}
	for _, r := range s.containers.Readings(ctx) {
		out.Containers.Running++
		if r.Asleep {
			out.Containers.Asleep++
		}
	}
	for _, p := range s.containers.Pools() {
		out.Pools = append(out.Pools, berth.PoolStatus{Template: p.Template, MemoryLimit: p.MemoryLimit, Size: p.Size,
			Target: p.Target, Ready: p.Ready, Hits: p.Hits, Misses: p.Misses})
	}
	for _, r := range s.space.Readings() {
		out.Disk = append(out.Disk, berth.DiskStatus{Area: string(r.Area), Bytes: r.Bytes, FreeBytes: r.Free,
			Low: r.IsLow})
	}
	return out
}

package container_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// A hanging driver fails the first starts from memory as hung.
type hanging struct {
	sandbox.Snapshotter // which is a Driver
	left                atomic.Int32
}

func (d *hanging) Restore(ctx context.Context, id string, r io.Reader) error {
	if d.left.Add(-1) >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Millisecond, sandbox.ErrHung)
		defer cancel()
	}
	return d.Snapshotter.Restore(ctx, id, r)
}

// A sandbox that hangs when it is started from memory is created again, once.
func TestMemoryHangs(t *testing.T) {
	var d *hanging
	k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t), func(o *container.Options) {
		d = &hanging{Snapshotter: o.Driver.(sandbox.Snapshotter)}
		o.Driver = d
	})
	first := inhabit(t, k, container.CreateRequest{})
	first.sh(counting)
	s, err := k.Snapshots().Take(t.Context(), byBench.Project, first.id, container.SnapshotRequest{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	from := container.CreateRequest{Source: berth.ContainerSource{SnapshotID: s.ID}}
	d.left.Store(1)
	if got, want := inhabit(t, k, from).sh(ask), "1 None\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.left.Store(2)
	if out, err := inhabit(t, k, from).try(t.Context(), "true"); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("after two hangs: got %q, %v, want that it could not be started", out, err)
	}
}

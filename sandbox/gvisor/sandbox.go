package gvisor

import (
	"context"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// An instance is one sandbox's directory and its wall. Its methods work on the existing files,
// which after a crash may be in any state.
type instance struct {
	id  string
	dir string
	wall
}

// at returns the sandbox with an id and a directory, which need not exist.
func (d *Driver) at(id, dir string) instance {
	if d.rootless {
		return instance{id, dir, &warden{id: id, dir: dir, runsc: d.runsc, processes: &d.base.Processes}}
	}
	return instance{id, dir, &group{id: id, dir: dir, processes: &d.base.Processes, runsc: d.runsc,
		skeleton: d.skeleton,
		cgroup:   d.cgroups.Group("berth-"+d.base.Instance, id)}}
}

// sealed is the directory of a sandbox with its disk and its configuration.
const sealed = host.Sealed

func (s instance) path(elem string) string { return s.dir + "/" + elem }

// run returns the path of a file in run/ for this process.
func (s instance) run(elem string) string { return s.wall.run() + "/" + elem }

// Free does nothing: the disk is an unlinked file, which is freed with the sentry.
func (s instance) Free() error { return nil }

// A record is the stored description of a sandbox.
type record struct {
	BootID string         `json:"boot_id"` // of the machine at creation
	Rootfs string         `json:"rootfs"`
	Image  string         `json:"image,omitempty"` // of the template, unless it is mounted
	Limits sandbox.Limits `json:"limits"`
}

// record returns the sandbox's record.
func (s instance) record() (r record, err error) {
	return r, sandbox.ReadRecord(s.dir, &r)
}

// List returns the ids of all sandboxes that exist, alive or dead.
func (d *Driver) List(context.Context) ([]string, error) { return d.base.Dir.List() }

// Stats reports the state and the resource use of the sandbox. A sandbox is dead only with
// proof: if the state cannot be read, as without a free descriptor, Stats returns an error.
//
// A dead sandbox in which the kernel killed a process at the memory limit has the reason oom.
// That is correct if the sentry was killed. If only a command was killed, the sandbox
// continued, and may have ended later for another reason.
func (d *Driver) Stats(_ context.Context, id string) (sandbox.Stats, error) { return d.base.Stats(id) }

// Destroy kills the sandbox's processes and removes its cgroup and its mount, if it has them,
// and its directory.
func (d *Driver) Destroy(ctx context.Context, id string) error { return d.base.Destroy(ctx, id) }

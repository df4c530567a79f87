package microvm

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// An instance is one sandbox's directory. Its methods work on the existing files, which after a
// crash may be in any state.
type instance struct {
	id        string
	dir       string
	cgroup    host.Cgroup
	processes *host.Processes
}

// at returns the sandbox with an id and a directory, which need not exist.
func (d *Driver) at(id, dir string) instance {
	return instance{id: id, dir: dir, cgroup: d.cgroups.Group("berth-"+d.base.Instance, id),
		processes: &d.base.Processes}
}

func (s instance) path(elem string) string { return s.dir + "/" + elem }

// sealed is the directory of a sandbox with its disk.
const (
	sealed   = host.Sealed
	diskFile = sealed + "/disk"
)

// A record is the stored description of a sandbox.
type record struct {
	BootID string         `json:"boot_id"` // of the machine at creation
	Image  string         `json:"image"`   // of the template
	UID    int            `json:"uid"`     // QEMU's user and group
	Limits sandbox.Limits `json:"limits"`

	Mounts []mountRecord `json:"mounts,omitempty"`
	Share  int           `json:"share,omitempty"` // host uid of the sandbox's root for mounts
}

// A mountRecord is a mount with its directory on this host.
type mountRecord struct {
	Name     string
	Source   string
	ReadOnly bool
}

func mountRecords(mounts []sandbox.Mount) []mountRecord {
	var records []mountRecord
	for _, m := range mounts {
		records = append(records, mountRecord{m.Name, m.Path, m.ReadOnly})
	}
	return records
}

// record returns the sandbox's record.
func (s instance) record() (r record, err error) {
	return r, sandbox.ReadRecord(s.dir, &r)
}

// qemu returns the process id of QEMU and whether it is alive. An error means that it is
// unknown.
func (s instance) qemu() (int, bool, error) { return s.processes.Find(s.id, s.search) }

// search finds QEMU by its pid file and the cgroup: the number may be reused by another process,
// but the cgroup cannot be another sandbox's.
func (s instance) search() (int, bool, error) { return host.FindIn(s.cgroup, s.path("pid")) }

func (s instance) Alive() (bool, error) {
	_, alive, err := s.qemu()
	return alive, err
}

func (s instance) Paused() (bool, error) {
	_, err := os.Lstat(s.path("paused"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (s instance) OOM() (bool, error) {
	kills, err := s.cgroup.OOMKills()
	return kills > 0, err
}

func (s instance) Usage() host.Usage {
	u := s.cgroup.Usage()
	var st unix.Stat_t
	if unix.Stat(s.path(diskFile), &st) == nil {
		u.Disk = st.Blocks * 512
	}
	return u
}

func (s instance) Signal(sig unix.Signal) (pids []int, err error) {
	pid, err := s.processes.Signal(s.id, s.search, sig)
	if pid == 0 {
		return nil, err
	}
	return []int{pid}, err
}

func (s instance) Kill(ctx context.Context) error   { return s.cgroup.Kill(ctx) }
func (s instance) Remove(ctx context.Context) error { return s.cgroup.Remove(ctx) }

// Free empties the file of the disk.
func (s instance) Free() error {
	if err := os.Truncate(s.path(diskFile), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns the ids of all sandboxes that exist, alive or dead.
func (d *Driver) List(context.Context) ([]string, error) { return d.base.Dir.List() }

// Stats reports the state and resource use of the sandbox as the host sees it: Memory is the
// memory that the machine has touched plus QEMU's own, PIDs are QEMU's threads. A sandbox is
// dead only with proof: if the state cannot be read, Stats returns an error.
//
// When memory is short in a machine, its own kernel ends processes. The reason is oom only if
// QEMU itself was killed at the cgroup's limit.
func (d *Driver) Stats(_ context.Context, id string) (sandbox.Stats, error) { return d.base.Stats(id) }

// Destroy kills QEMU and removes the sandbox's cgroup, the key of its disk and its directory.
func (d *Driver) Destroy(ctx context.Context, id string) error { return d.base.Destroy(ctx, id) }

package microvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-run/berth/internal/statefile"
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

// sandbox returns the sandbox of an id, which need not exist.
func (d *Driver) sandbox(id string) (instance, error) {
	dir, err := d.dir.Path(id)
	if err != nil {
		return instance{}, err
	}
	return instance{id: id, dir: dir, cgroup: d.cgroups.Group("berth-"+d.instance, id), processes: &d.processes}, nil
}

// find returns an existing sandbox, or sandbox.ErrNotFound.
func (d *Driver) find(id string) (instance, error) {
	if _, err := d.dir.Find(id); err != nil {
		return instance{}, fmt.Errorf("microvm: %w", err)
	}
	return d.sandbox(id)
}

func (s instance) path(elem string) string { return s.dir + "/" + elem }

// exists reports whether a file exists in the sandbox's directory.
func (s instance) exists(elem string) (bool, error) {
	_, err := os.Lstat(s.path(elem))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// sealed is the directory of a sandbox with its disk.
const (
	sealed   = "sealed"
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
func (s instance) record() (record, error) {
	var r record
	raw, err := statefile.ReadFile(s.path("sandbox.json"))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errGarbled, err)
	}
	return r, nil
}

// errGarbled is returned for a damaged record.
var errGarbled = errors.New("sandbox.json is damaged")

// qemu returns the process id of QEMU and whether it is alive. An error means that it is
// unknown.
func (s instance) qemu() (int, bool, error) {
	return s.processes.Find(s.id, func() (int, bool, error) {
		// The number may be reused by another process; the cgroup cannot be another sandbox's.
		return host.FindIn(s.cgroup, s.path("pid"))
	})
}

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

// A sandbox is one directory of the driver's. All its methods work on what is
// there, which after a crash may be anything.
type instance struct {
	id        string
	dir       string
	cgroup    host.Cgroup
	processes *host.Processes
}

// sandbox returns the sandbox of that id, whether there is one or not.
func (d *Driver) sandbox(id string) (instance, error) {
	dir, err := d.dir.Path(id)
	if err != nil {
		return instance{}, err
	}
	return instance{id: id, dir: dir, cgroup: d.cgroups.Group("berth-"+d.instance, id), processes: &d.processes}, nil
}

// find is sandbox, but returns sandbox.ErrNotFound where there is none.
func (d *Driver) find(id string) (instance, error) {
	if _, err := d.dir.Find(id); err != nil {
		return instance{}, fmt.Errorf("microvm: %w", err)
	}
	return d.sandbox(id)
}

func (s instance) path(elem string) string { return s.dir + "/" + elem }

// exists reports whether there is such a file in the sandbox's directory.
func (s instance) exists(elem string) (bool, error) {
	_, err := os.Lstat(s.path(elem))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// sealed is the directory of a sandbox that holds what it writes.
const (
	sealed   = "sealed"
	diskFile = sealed + "/disk"
)

// A record is the saved description of a sandbox.
type record struct {
	BootID string         `json:"boot_id"` // of the machine at the time
	Image  string         `json:"image"`   // the template's
	UID    int            `json:"uid"`     // QEMU's user and group
	Limits sandbox.Limits `json:"limits"`

	Mounts []mountRecord `json:"mounts,omitempty"`
	Share  int           `json:"share,omitempty"` // what the sandbox's root is on the host, to mounts
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

// errGarbled is of a record that is there and cannot be understood.
var errGarbled = errors.New("sandbox.json is damaged")

// qemu returns the process id of QEMU and whether it is alive. An error means that it
// is not known.
func (s instance) qemu() (int, bool, error) {
	return s.processes.Find(s.id, func() (int, bool, error) {
		// The number may be another process's by now; the cgroup cannot be another
		// sandbox's.
		return host.FindIn(s.cgroup, s.path("pid"))
	})
}

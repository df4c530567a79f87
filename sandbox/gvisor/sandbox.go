package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/sandbox"
)

// An instance is one sandbox's directory. Its methods work on the existing files, which after a
// crash may be in any state.
type instance struct {
	id   string
	dir  string
	wall wall
}

// sandbox returns the sandbox of an id, which need not exist.
func (d *Driver) sandbox(id string) (instance, error) {
	dir, err := d.dir.Path(id)
	if err != nil {
		return instance{}, err
	}
	if d.rootless {
		return instance{id, dir, &warden{id: id, dir: dir, runsc: d.runsc, processes: &d.processes}}, nil
	}
	return instance{id, dir, &group{id: id, dir: dir, processes: &d.processes, runsc: d.runsc, skeleton: d.skeleton, cgroup: d.cgroups.Group("berth-"+d.instance, id)}}, nil
}

// find returns an existing sandbox, or sandbox.ErrNotFound.
func (d *Driver) find(id string) (instance, error) {
	if _, err := d.dir.Find(id); err != nil {
		return instance{}, fmt.Errorf("gvisor: %w", err)
	}
	return d.sandbox(id)
}

// sealed is the directory of a sandbox with its disk and its configuration. If the volume
// supports it, it is encrypted with a key that is destroyed with the sandbox.
const sealed = "sealed"

func (s instance) path(elem string) string { return s.dir + "/" + elem }

// run returns the path of a file in run/ for this process.
func (s instance) run(elem string) string { return s.wall.run() + "/" + elem }

// A record is the stored description of a sandbox.
type record struct {
	BootID string         `json:"boot_id"` // of the machine at creation
	Rootfs string         `json:"rootfs"`
	Image  string         `json:"image,omitempty"` // of the template, unless it is mounted
	Limits sandbox.Limits `json:"limits"`
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

// started reports whether Start was called.
func (s instance) started() (bool, error) {
	_, err := os.Lstat(s.path("started"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

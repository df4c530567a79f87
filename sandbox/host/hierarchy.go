package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Hierarchy describes the cgroup mounts of this machine. There are three kinds: version 2
// alone; version 1, one mount for each controller or two; and both side by side, where version
// 1 has the controllers and version 2 is used to kill and to list processes.
//
// Berth writes the dozen files itself. containerd/cgroups can do it too, but joins version 1
// groups by process id, which waits for an RCU grace period for each controller (8–12 ms; a
// thread that joins itself does not wait), and depends on BPF, D-Bus and protocol buffers.
type Hierarchy struct {
	v2      string            // mount point of version 2, or ""
	unified bool              // version 2 has the controllers
	v1      map[string]string // controller to mount point, of version 1
}

// limiters are the controllers that limits require.
var limiters = []string{"memory", "cpu", "pids"}

// v1Joined are the version 1 hierarchies in which a sandbox gets a group, if they exist: the
// limiters, accounting, and systemd's, so that stopping the server's unit does not stop the
// sandboxes.
var v1Joined = append([]string{"cpuacct", "name=systemd"}, limiters...)

// FindHierarchy detects this machine's cgroup mounts.
func FindHierarchy() (Hierarchy, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Hierarchy{}, err
	}
	h := parseMountinfo(bytes.NewReader(raw))
	for _, dir := range h.Group("", "").dirs() {
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return Hierarchy{}, fmt.Errorf("cgroups cannot be created: %w", &os.PathError{Op: "access", Path: dir,
				Err: err})
		}
	}
	missing := slices.DeleteFunc(slices.Clone(limiters), func(c string) bool { return h.v1[c] != "" })
	switch {
	case len(missing) == 0:
	case len(missing) == len(limiters) && h.v2 != "":
		h.unified = true
		if err := enableControllers(h.v2); err != nil {
			return Hierarchy{}, fmt.Errorf("cgroup version 2 at %s: %w", h.v2, err)
		}
	default:
		return Hierarchy{}, fmt.Errorf("no cgroup controller for: %s", strings.Join(missing, " "))
	}
	return h, nil
}

// parseMountinfo parses proc_pid_mountinfo(5). It ignores lines that it cannot parse.
func parseMountinfo(r io.Reader) Hierarchy {
	h := Hierarchy{v1: make(map[string]string)}
	for s := bufio.NewScanner(r); s.Scan(); {
		// 39 32 0:34 /root /mount/point rw shared:18 - cgroup source rw,cpu,cpuacct
		left, right, ok := strings.Cut(s.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		switch point := l[4]; r[0] {
		case "cgroup2":
			if h.v2 == "" {
				h.v2 = point
			}
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				if slices.Contains(v1Joined, o) && h.v1[o] == "" {
					h.v1[o] = point
				}
			}
		}
	}
	return h
}

// enableControllers enables the limiters in the groups below dir.
func enableControllers(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	var want []string
	for _, c := range limiters {
		if !slices.Contains(strings.Fields(string(have)), c) {
			want = append(want, "+"+c)
		}
	}
	if len(want) == 0 {
		return nil
	}
	err = writeControl(dir, "cgroup.subtree_control", strings.Join(want, " "))
	if err != nil {
		return fmt.Errorf("cannot enable %s (in a container, move its processes to a group below the root first): %w",
			strings.Join(want, " "), err)
	}
	return nil
}

// Group returns the group called parent/name. It need not exist.
func (h Hierarchy) Group(parent, name string) Cgroup {
	c := Cgroup{unified: h.unified, v1: make(map[string]string)}
	if h.v2 != "" {
		c.v2 = filepath.Join(h.v2, parent, name)
	}
	if !h.unified {
		for controller, point := range h.v1 {
			c.v1[controller] = filepath.Join(point, parent, name)
		}
	}
	return c
}

// writeControl writes a control file, which must exist.
func writeControl(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

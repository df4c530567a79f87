package kubetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cgroupName is the control group of all nodes' Pods, below the root of each hierarchy. Each node
// has one with its name in it.
const cgroupName = "berth-kubetest"

const cgroupMount = "/sys/fs/cgroup"

// hierarchies returns the roots of the machine's control groups.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, filepath.Join(cgroupMount, e.Name()))
		}
	}
	return all, nil
}

// makeCgroups creates the control groups of the Pods, after what an earlier run left is removed.
func makeCgroups() error {
	if err := removeCgroups(); err != nil {
		return err
	}
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		top := filepath.Join(root, cgroupName)
		for _, dir := range []string{top, filepath.Join(top, nodeName), filepath.Join(top, secondName)} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
				raw, err := os.ReadFile(filepath.Join(root, name))
				if err != nil || len(strings.TrimSpace(string(raw))) == 0 {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), raw, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// removeCgroups removes the control group. Its processes have been killed, but may take a moment
// to end.
func removeCgroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		top := filepath.Join(root, cgroupName)
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			err := removeTree(top)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("remove control groups: %w", err)
			}
		}
	}
	return nil
}

func removeTree(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

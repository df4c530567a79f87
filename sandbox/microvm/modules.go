package microvm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// modules are the kernel modules that a sandbox's machine needs and that are not built into
// Debian's kernel for clouds.
var modules = []string{"virtio_mmio", "virtio_pci", "virtio_blk", "virtio_console", "overlay", "tun", "virtiofs"}

// loadOrder returns the files of the modules and their dependencies from a tree of modules,
// each after its dependencies.
func loadOrder(tree string, names []string) ([]string, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(e.Name(), ".ko"); ok && err == nil {
			files[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var order []string
	var add func(name string, above []string) error
	add = func(name string, above []string) error {
		path, ok := files[moduleName(name)]
		if !ok {
			return fmt.Errorf("no module %s in %s", name, tree)
		}
		if slices.Contains(order, path) {
			return nil
		}
		if slices.Contains(above, name) {
			return fmt.Errorf("module %s depends on itself", name)
		}
		needs, err := moduleDepends(path)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := add(n, append(above, name)); err != nil {
				return err
			}
		}
		order = append(order, path)
		return nil
	}
	for _, name := range names {
		if err := add(name, nil); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleName returns the kernel's form of a name.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// moduleDepends returns the names of a module's direct dependencies.
func moduleDepends(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s: not a module", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(field, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(string(list), ","), nil
		}
	}
	return nil, nil
}

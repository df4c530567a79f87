package volume

import (
	"archive/tar"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A volume is mounted in berth.VolumeDir, since drivers mount file systems only there. At a path
// elsewhere is a symbolic link to it. Its target is relative, because the guest opens files below a
// directory without following links to absolute paths.

// maxMountPath is the maximum length of a volume's path in a container, in bytes.
const maxMountPath = 256

// reserved are the directories with nothing of a container's own below them.
var reserved = []string{"/.berth", "/dev", "/proc", "/sys", berth.VolumeDir}

// system are the directories that a volume cannot replace. One below them can be replaced.
var system = []string{"/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/mnt", "/opt",
	"/root", "/run",
	"/sbin", "/srv", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin", "/var"}

// checkPath returns why a volume cannot be at a path, or "".
func checkPath(p string) string {
	if path.Dir(p) == berth.VolumeDir {
		if path.Clean(p) == p && namePattern.MatchString(path.Base(p)) {
			return ""
		}
		return fmt.Sprintf("expected '%s/' and a name of lower-case letters, digits, '_' and '-'", berth.VolumeDir)
	}
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || len(p) > maxMountPath || strings.ContainsRune(p, 0):
		return fmt.Sprintf("expected an absolute path of at most %d bytes without '.', '..' and a slash at the end",
			maxMountPath)
	case slices.Contains(system, p):
		return "a volume cannot replace this directory"
	case slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool { return strings.HasPrefix(name, ".wh.") }):
		return "names that start with '.wh.' are reserved"
	}
	for _, dir := range reserved {
		if within(p, dir) {
			return fmt.Sprintf("'%s' is reserved", dir)
		}
	}
	return ""
}

// within reports whether p is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// mountNames returns the name below berth.VolumeDir of each of a container's volumes: that of its path,
// else its own, else one that is free.
func mountNames(mounts []berth.VolumeMount) []string {
	names := make([]string, len(mounts))
	for i, m := range mounts {
		if path.Dir(m.Path) == berth.VolumeDir {
			names[i] = path.Base(m.Path)
		}
	}
	for i, m := range mounts {
		if names[i] != "" {
			continue
		}
		name := m.Name
		for n := 2; slices.Contains(names, name); n++ {
			name = fmt.Sprintf("volume-%d", n)
		}
		names[i] = name
	}
	return names
}

// WriteLinks writes a layer with the links to the volumes of a container that are mounted elsewhere than
// at their paths. It reports whether there are any.
func WriteLinks(w io.Writer, mounts []berth.VolumeMount, now time.Time) (bool, error) {
	out, some := tar.NewWriter(w), false
	for i, name := range mountNames(mounts) {
		at, target := mounts[i].Path, path.Join(berth.VolumeDir, name)
		if at == target {
			continue
		}
		some = true
		target, err := filepath.Rel(path.Dir(at), target)
		if err != nil {
			return false, err
		}
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(at, "/"), Linkname: target, Mode: 0o777,
			ModTime: now}
		if err := out.WriteHeader(h); err != nil {
			return false, err
		}
	}
	return some, out.Close()
}

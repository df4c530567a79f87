package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
)

// Images is a cache of templates' images, for drivers that cannot show a template's directory to
// a sandbox. Several processes may use one directory.
type Images struct{ dir string }

// sourceSuffix is the suffix of the file beside an image that names its template.
const sourceSuffix = ".source"

// OpenImages opens a directory of images, and creates it if it does not exist.
func OpenImages(dir string) (Images, error) { return Images{dir}, os.MkdirAll(dir, 0o700) }

// Get returns the path of the image of a template. If the cache does not have it, write creates
// it at a path from the template's directory.
func (i Images) Get(t Template, write func(path, rootfs string) error) (string, error) {
	byPath, err := i.byPath(t.Path)
	if err != nil {
		return "", err
	}
	if t.Digest == "" {
		return i.get(byPath, t.Path, write)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "2 %s", t.Digest))
	return i.get(filepath.Join(i.dir, hex.EncodeToString(sum[:16])), t.Path, func(path, rootfs string) error {
		// Earlier versions cached every image by path.
		if os.Link(byPath, path) == nil {
			return nil
		}
		return write(path, rootfs)
	})
}

// byPath returns the path of the image of a template without a digest. The template never
// changes, so the identity of its directory identifies its content.
func (i Images) byPath(rootfs string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(rootfs, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: rootfs, Err: err}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "1 %q %d %d %d", rootfs, st.Dev, st.Ino, st.Mtim.Nano()))
	return filepath.Join(i.dir, hex.EncodeToString(sum[:16])), nil
}

// get returns path, at which write creates an image if there is none.
func (i Images) get(path, rootfs string, write func(path, rootfs string) error) (string, error) {
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", os.NewSyscallError("flock", err)
	}
	if _, err := os.Stat(path); err == nil { // another process created it
		return path, nil
	}
	tmp := path + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a crash
		return "", err
	}
	if err := write(tmp, rootfs); err != nil {
		if rerr := os.Remove(tmp); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return "", err
	}
	if err := WriteFile(path+sourceSuffix, []byte(rootfs), 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

// Drop removes the images of templates whose directories are gone, unless they are used.
func (i Images) Drop(used map[string]bool) error {
	sources, err := filepath.Glob(filepath.Join(i.dir, "*"+sourceSuffix))
	if err != nil {
		return err
	}
	for _, source := range sources {
		rootfs, err := statefile.ReadFile(source)
		if err != nil {
			return err
		}
		image := strings.TrimSuffix(source, sourceSuffix)
		if _, err := os.Stat(string(rootfs)); !errors.Is(err, fs.ErrNotExist) || used[image] {
			continue
		}
		for _, path := range []string{image, image + ".lock", source} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

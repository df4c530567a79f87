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

// Images holds an image of each template in use, for drivers that cannot show its directory
// to a sandbox. Several processes may use one directory.
type Images struct{ dir string }

// sourceSuffix is the suffix of the file beside an image that names its template.
const sourceSuffix = ".source"

// OpenImages opens a directory of images, which it creates if need be.
func OpenImages(dir string) (Images, error) { return Images{dir}, os.MkdirAll(dir, 0o700) }

// Get returns the path of the image of the template at rootfs. If there is none, write
// makes one at a path.
func (i Images) Get(rootfs string, write func(path, rootfs string) error) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(rootfs, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: rootfs, Err: err}
	}
	// A template is never written, so its directory stands for all that is in it.
	sum := sha256.Sum256(fmt.Appendf(nil, "1 %q %d %d %d", rootfs, st.Dev, st.Ino, st.Mtim.Nano()))
	path := filepath.Join(i.dir, hex.EncodeToString(sum[:16]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil { // another process was quicker
		return path, nil
	}
	tmp := path + ".tmp"
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

// Drop removes the images of templates that are gone, unless they are used.
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

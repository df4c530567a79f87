package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/boot"
	"github.com/berth-run/berth/sandbox/driver"
)

// blockSize of the file systems.
const blockSize = 4096

// image returns the path of the template as a disk image, which it makes at the first
// time: a second for each hundred megabytes.
func (d *Driver) image(ctx context.Context, rootfs string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(rootfs, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: rootfs, Err: err}
	}
	// A template is never written, so its directory stands for all that is in it.
	sum := sha256.Sum256(fmt.Appendf(nil, "1 %q %d %d %d", rootfs, st.Dev, st.Ino, st.Mtim.Nano()))
	path := filepath.Join(d.opts.ImageDir, hex.EncodeToString(sum[:16]))
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
	if _, err := os.Stat(path); err == nil { // somebody else was quicker
		return path, nil
	}
	size, files, err := measure(rootfs)
	if err != nil {
		return "", err
	}
	tmp := path + ".tmp"
	if err := makeFS(ctx, tmp, size, rootfs, "-N", strconv.Itoa(files)); err != nil {
		return "", errors.Join(err, os.Remove(tmp))
	}
	if err := driver.WriteFile(path+sourceSuffix, []byte(rootfs), 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

// sourceSuffix is of the file beside an image that says which template it is of.
const sourceSuffix = ".source"

// dropImages removes the images of templates that are gone and of which there is no
// sandbox.
func (d *Driver) dropImages() error {
	used := make(map[string]bool)
	ids, err := d.dir.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		s, err := d.sandbox(id)
		if err != nil {
			return err
		}
		if rec, err := s.record(); err == nil {
			used[rec.Image] = true
		}
	}
	sources, err := filepath.Glob(filepath.Join(d.opts.ImageDir, "*"+sourceSuffix))
	if err != nil {
		return err
	}
	for _, source := range sources {
		rootfs, err := os.ReadFile(source)
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

// measure returns how large and for how many files a file system for the tree has to be.
func measure(root string) (size int64, files int, err error) {
	err = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		files++
		size += blockSize // for its inode, its name, its attributes
		if info.Mode().IsRegular() {
			size += (info.Size() + blockSize - 1) / blockSize * blockSize
		}
		return nil
	})
	return size + size/16 + 32<<20, files + files/16 + 256, err
}

// makeFS makes a sparse ext4 image with the content of a directory. It keeps no
// journal: what a machine has written when it dies is not read any more.
func makeFS(ctx context.Context, path string, size int64, content string, options ...string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size/blockSize*blockSize), f.Close()); err != nil {
		return err
	}
	args := append([]string{"-q", "-F", "-t", "ext4", "-b", strconv.Itoa(blockSize), "-m", "0",
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", "-d", content}, options...)
	_, err = run(ctx, "/", "mke2fs", append(args, path)...)
	return err
}

// makeDisk makes the disk of a sandbox in its directory, with what package boot wants
// to know.
func makeDisk(ctx context.Context, dir string, spec driver.Spec) error {
	content := filepath.Join(dir, "content")
	if err := os.Mkdir(content, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(content)
	raw, err := json.Marshal(bootConfig(spec))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(content, boot.ConfigName), raw, 0o600); err != nil {
		return err
	}
	return makeFS(ctx, filepath.Join(dir, "disk"), spec.Limits.Disk, content)
}

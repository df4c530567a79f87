package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-run/berth/guest/boot"
	"github.com/berth-run/berth/sandbox"
)

// blockSize is the block size of the file systems.
const blockSize = 4096

// image returns the path of the template's disk image. It creates the image at the first use,
// which takes a second for each hundred megabytes.
func (d *Driver) image(ctx context.Context, t sandbox.Template) (string, error) {
	return d.images.Get(t, func(path, rootfs string) error {
		size, files, err := measure(rootfs)
		if err != nil {
			return err
		}
		return makeFS(ctx, path, size, rootfs, "-N", strconv.Itoa(files))
	})
}

// dropImages removes the images of removed templates that no sandbox uses.
func (d *Driver) dropImages() error {
	used, err := d.base.UsedImages()
	if err != nil {
		return err
	}
	return d.images.Drop(used)
}

// measure returns the required size and number of files of a file system for the tree.
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
		size += blockSize // for its inode, name and attributes
		if info.Mode().IsRegular() {
			size += (info.Size() + blockSize - 1) / blockSize * blockSize
		}
		return nil
	})
	return size + size/16 + 32<<20, files + files/16 + 256, err
}

// makeFS creates a sparse ext4 image with the content of a directory. It has no journal,
// because a disk is not read again after its machine has died.
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

// bootDir is the initial content of a sandbox's disk, beside the disk.
const bootDir = "boot"

// writeBoot writes the configuration for package boot into the directory of a sandbox's disk.
func writeBoot(dir string, config boot.Config) error {
	if err := os.Mkdir(filepath.Join(dir, bootDir), 0o700); err != nil {
		return err
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, bootDir, boot.ConfigName), raw, 0o600)
}

// makeDisk creates the disk of a sandbox in its directory with the files of writeBoot. It
// replaces an existing one.
func makeDisk(ctx context.Context, dir string, size int64) error {
	return makeFS(ctx, filepath.Join(dir, "disk"), size, filepath.Join(dir, bootDir))
}

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

// digest returns the digest of a root file system and of what its image says of
// programs, "sha256:…", and the bytes in its files. It covers the manifest, which has a line for each file, directory, link
// and device, in the order of their paths: path, type and permissions, owner and
// group, device number, file capabilities, and what is in it (the SHA-256 of a
// file, the target of a link). It does not cover times, which paths are hard links
// of one file, other extended attributes, nor the recipe: what has the same content
// is the same template.
func digest(root string, c Config) (sum string, bytes int64, err error) {
	owners, err := layer.OwnersOf(root)
	if err != nil {
		return "", 0, err
	}
	manifest := sha256.New()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, err := owners.Lstat(path)
		if err != nil {
			return err
		}
		content, capabilities := "", ""
		switch {
		case info.Mode().IsRegular():
			bytes += info.Size()
			if content, err = fileDigest(path); err == nil {
				capabilities, err = fileCapabilities(path)
			}
		case info.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(path)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(manifest, "%q %o %d:%d %d %x %q\n", path[len(root):], st.Mode, st.Uid, st.Gid, st.Rdev, capabilities, content)
		return err
	})
	if c.Env != nil || c.User != "" || c.WorkingDir != "" {
		fmt.Fprintf(manifest, "config %q %q %q\n", c.Env, c.User, c.WorkingDir)
	}
	return "sha256:" + hex.EncodeToString(manifest.Sum(nil)), bytes, err
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// fileCapabilities returns a file's capabilities as the kernel stores them.
func fileCapabilities(path string) (string, error) {
	var buf [64]byte // a version 3 capability is 24 bytes
	n, err := unix.Lgetxattr(path, "security.capability", buf[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	return string(buf[:max(n, 0)]), err
}

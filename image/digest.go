package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

// digest returns the template digest, "sha256:…", of a root file system and its
// configuration, and the total size of its files.
//
// The digest covers the configuration and a manifest with a line for each file, directory,
// link and device, in path order: path, type and permissions, owner and group, device
// number, file capabilities, and content (a file's SHA-256, a link's target). It does not
// cover times, hard links, other extended attributes or the recipe, so equal content is the
// same template.
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
		_, err = fmt.Fprintf(manifest, "%q %o %d:%d %d %x %q\n", path[len(root):], st.Mode, st.Uid, st.Gid, st.Rdev,
			capabilities, content)
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
	sum, _, err := v1.SHA256(f)
	return sum.Hex, err
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

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// digest returns the SHA-256 of a root file system's manifest, and the bytes of
// its files. The manifest has one line for each file in the order of their paths:
// path, type and mode, owner, device number, and what is in it (the SHA-256 of a
// file, the target of a link). Times and hard links are left out: two builds of the
// same content have the same digest.
func digest(root string) (string, int64, error) {
	manifest := sha256.New()
	var bytes int64
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no stat", path)
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			bytes += info.Size()
			content, err = fileDigest(path)
		case info.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(path)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(manifest, "%q %o %d:%d %d %q\n", path[len(root):], st.Mode, st.Uid, st.Gid, st.Rdev, content)
		return err
	})
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

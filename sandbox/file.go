package sandbox

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// WriteFile writes a file atomically: a crash leaves the old file or the new one.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return CopyToFile(path, bytes.NewReader(data), perm)
}

// CopyToFile is like WriteFile, with the content read from r.
func CopyToFile(path string, r io.Reader, perm fs.FileMode) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Chmod(perm), f.Close()) // independent of the umask
	if err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

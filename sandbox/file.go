package sandbox

import (
	"io/fs"
	"os"
)

// WriteFile writes a file atomically: a crash leaves the old file or the new one.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, perm); err != nil {
		return err
	}
	if err := os.Chmod(tmp, perm); err != nil { // independent of the umask
		return err
	}
	return os.Rename(tmp, path)
}

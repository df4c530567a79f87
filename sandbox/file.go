package sandbox

import (
	"io/fs"
	"os"
)

// WriteFile writes a file of which a crash leaves all or nothing.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, perm); err != nil {
		return err
	}
	if err := os.Chmod(tmp, perm); err != nil { // whatever the umask says
		return err
	}
	return os.Rename(tmp, path)
}

package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Backup copies the record in dir into the empty directory to. A server may write to the
// record meanwhile; it waits while the last segments are copied.
func Backup(dir, to string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("audit: back up %s: %w", dir, err)
		}
	}()
	copied := map[int64]bool{}
	segments, err := listSegments(dir)
	if err != nil {
		return err
	}
	for _, first := range segments[:max(0, len(segments)-1)] { // all but the last are final
		if err := copyFile(filepath.Join(dir, segmentName(first)), filepath.Join(to, segmentName(first))); err != nil {
			return err
		}
		copied[first] = true
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // also releases the lock
	if err := flock(lock, unix.LOCK_EX); err != nil {
		return err
	}
	if segments, err = listSegments(dir); err != nil {
		return err
	}
	names := []string{keyFile, publicFile}
	for _, first := range segments {
		if !copied[first] {
			names = append(names, segmentName(first))
		}
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fi.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
)

// Backup copies the record in dir into the empty directory to. A server may write to the
// record during it; the server waits while the last segments are copied.
func Backup(ctx context.Context, dir, to string) (err error) {
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
		if err := statefile.Copy(ctx, filepath.Join(dir, segmentName(first)),
			filepath.Join(to, segmentName(first))); err != nil {
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
		if err := statefile.Copy(ctx, filepath.Join(dir, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

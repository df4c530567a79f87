package server

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

// Bounds on the output files that stay after their call. Beyond them, the oldest files are
// removed.
const (
	keptFiles = 64
	keptBytes = 256 << 20
)

// keptOutput manages files with the output of commands that printed more than their caller
// passes on. All users of the sandbox may read them.
type keptOutput struct {
	dir string // created at the guest's start

	mu    sync.Mutex
	files []*v1.Kept // oldest first
	bytes uint64
}

// name returns the path of the file for a command's output.
func (k *keptOutput) name(call string, command int, stream string) string {
	return filepath.Join(k.dir, fmt.Sprintf("%s.%d.%s", call, command, stream))
}

// keep makes the file of a spool permanent and removes old files. It returns nil if there
// is no output, or no room.
func (k *keptOutput) keep(s *spool) *v1.Kept {
	name, size := s.keep()
	if name == "" {
		return nil
	}
	file := &v1.Kept{Path: name, Bytes: uint64(size)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files = append(k.files, file)
	k.bytes += file.Bytes
	for len(k.files) > keptFiles || k.bytes > keptBytes {
		os.Remove(k.files[0].Path)
		k.bytes -= k.files[0].Bytes
		k.files = k.files[1:]
	}
	return file
}

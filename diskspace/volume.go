package diskspace

import (
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// A volume is a file system that holds state.
type volume struct {
	dir  string // a directory on it
	dev  uint64
	root bool // this process may use the blocks reserved for root

	low, critical, lowInodes int64

	size, free, own    int64 // bytes; own is available to this process
	inodes, inodesFree int64
	wasLow, wasBad     bool // as last logged
}

// Bounds of the default floors.
const (
	lowShare, lowLeast, lowMost                = 20, 256 << 20, 10 << 30 // a twentieth
	criticalShare, criticalLeast, criticalMost = 100, 64 << 20, 2 << 30
	reserveShare, reserveLeast, reserveMost    = 100, 16 << 20, 256 << 20
	inodeShare, inodeMost                      = 100, 20_000
	// smallShare bounds the low floor of a small volume to this fraction of it. The critical
	// floor and the reserve are at most a quarter of the low floor.
	smallShare = 5
)

func openVolume(dir string, opts Options) (*volume, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	v := &volume{dir: dir, dev: uint64(st.Dev), root: os.Geteuid() == 0}
	if err := v.measure(); err != nil {
		return nil, err
	}
	v.low = or(opts.Low, Low(v.size))
	v.critical = min(or(opts.Critical, min(clamp(v.size/criticalShare, criticalLeast, criticalMost),
		v.size/smallShare/4)), v.low)
	v.lowInodes = or(opts.Inodes, min(v.inodes/inodeShare, inodeMost))
	return v, nil
}

// Low returns the default floor of a volume of size bytes, below which nothing new is stored.
func Low(size int64) int64 { return min(clamp(size/lowShare, lowLeast, lowMost), size/smallShare) }

func (v *volume) reserveSize(set *int64) int64 {
	return or(set, min(clamp(v.size/reserveShare, reserveLeast, reserveMost), v.size/smallShare/4))
}

func clamp(n, least, most int64) int64 { return min(max(n, least), most) }

func or(set *int64, otherwise int64) int64 {
	if set != nil {
		return *set
	}
	return otherwise
}

func (v *volume) measure() error {
	var st unix.Statfs_t
	if err := unix.Statfs(v.dir, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: v.dir, Err: err}
	}
	v.size, v.free, v.own = int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize, int64(st.Bavail)*st.Bsize
	if v.root {
		// ext4 reports blocks as free that it allocates to no file: a fiftieth, at most 4096.
		unusable := min(int64(st.Blocks)/50, 4096) * st.Bsize
		v.own = max(v.free, int64(st.Bfree)*st.Bsize-unusable)
	}
	v.inodes, v.inodesFree = int64(st.Files), int64(st.Ffree)
	return nil
}

func (v *volume) isLow() bool {
	return v.free < v.low || v.inodes > 0 && v.inodesFree < v.lowInodes
}

// report logs when the volume falls below a floor or rises above it.
func (v *volume) report(log *slog.Logger) {
	low, bad := v.isLow(), v.free < v.critical
	attrs := []any{"dir", v.dir, "free_bytes", v.free, "low_bytes", v.low, "critical_bytes", v.critical, "free_inodes",
		v.inodesFree, "low_inodes", v.lowInodes}
	switch {
	case bad && !v.wasBad:
		log.Error("the disk is full: nothing new is stored, and the largest writer is ended", attrs...)
	case low && !v.wasLow:
		log.Error("the disk is nearly full: nothing new is stored", attrs...)
	case !low && v.wasLow:
		log.Info("the disk has enough space again", attrs...)
	}
	v.wasLow, v.wasBad = low, bad
}

package host

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Usage is one reading of a sandbox's resource use. Figures that cannot be read are zero.
type Usage struct {
	CPU    time.Duration
	Memory int64 // bytes, without reclaimable page cache
	Peak   int64 // maximum of memory in bytes, with all page cache
	PIDs   int   // host processes and threads
	Disk   int64 // bytes on the sandbox's disk, which Cgroup does not count

	Pressure *float64 // see sandbox.Stats
}

// Usage reads the figures of c.
func (c Cgroup) Usage() Usage {
	if c.unified {
		return Usage{
			Pressure: c.pressure(),
			CPU:      time.Duration(keyedValue(c.v2, "cpu.stat", "usage_usec")) * time.Microsecond,
			Memory:   max(0, value(c.v2, "memory.current")-keyedValue(c.v2, "memory.stat", "inactive_file")),
			Peak:     value(c.v2, "memory.peak"),
			PIDs:     int(value(c.v2, "pids.current")),
		}
	}
	memory := c.v1["memory"]
	return Usage{
		Pressure: c.pressure(),
		CPU:      time.Duration(value(c.v1["cpuacct"], "cpuacct.usage")),
		Memory: max(0, value(memory, "memory.usage_in_bytes")-keyedValue(memory, "memory.stat",
			"total_inactive_file")),
		Peak: value(memory, "memory.max_usage_in_bytes"),
		PIDs: int(value(c.v1["pids"], "pids.current")),
	}
}

// pressure reads the CPU pressure of c, which only version 2 has. It returns nil if the kernel
// does not report it.
func (c Cgroup) pressure() *float64 {
	if c.v2 == "" {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(c.v2, "cpu.pressure"))
	if err != nil {
		return nil
	}
	return parsePressure(string(raw))
}

// parsePressure reads the share of the last ten seconds from a file of /proc/pressure, such as
// "some avg10=98.60 avg60=…", or returns nil.
func parsePressure(text string) *float64 {
	_, rest, _ := strings.Cut(text, "some avg10=")
	figure, _, _ := strings.Cut(rest, " ")
	percent, err := strconv.ParseFloat(figure, 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return nil
	}
	share := percent / 100
	return &share
}

// OOMKills returns how many processes in c were killed at the memory limit. For a group that
// does not exist it returns 0.
func (c Cgroup) OOMKills() (int64, error) {
	dir, file := c.v2, "memory.events"
	if !c.unified {
		dir, file = c.v1["memory"], "memory.oom_control"
	}
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return keyed(raw, "oom_kill"), nil
}

// value reads a file that holds one number.
func value(dir, file string) int64 {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	return parseCount(strings.TrimSpace(string(raw)))
}

// keyedValue reads the number after key in a file of "key number" lines.
func keyedValue(dir, file, key string) int64 {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	return keyed(raw, key)
}

// keyed returns the number after key in "key number" lines.
func keyed(raw []byte, key string) int64 {
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return parseCount(f[1])
		}
	}
	return 0
}

// parseCount parses a number that the kernel may print as an unsigned 64-bit integer.
func parseCount(s string) int64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return int64(min(n, math.MaxInt64))
}

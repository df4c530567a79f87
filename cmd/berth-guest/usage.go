package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroupDir is where a container sees its own control group.
const cgroupDir = "/sys/fs/cgroup"

// A usage is the resource use of a container. Figures that cannot be read are zero.
type usage struct {
	CPU        time.Duration
	Memory     int64 // bytes, without page cache that can be dropped
	MemoryPeak int64
	PIDs       int64
}

// writeUsage writes the resource use of the control group at dir as JSON.
func writeUsage(w io.Writer, dir string) error {
	return json.NewEncoder(w).Encode(readUsage(dir))
}

func readUsage(dir string) usage {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		return usage{
			CPU:        time.Duration(field(dir, "cpu.stat", "usage_usec")) * time.Microsecond,
			Memory:     max(0, single(dir, "memory.current")-field(dir, "memory.stat", "inactive_file")),
			MemoryPeak: single(dir, "memory.peak"),
			PIDs:       single(dir, "pids.current"),
		}
	}
	return usage{
		CPU: time.Duration(single(dir, "cpuacct/cpuacct.usage")),
		Memory: max(0, single(dir, "memory/memory.usage_in_bytes")-field(dir, "memory/memory.stat",
			"total_inactive_file")),
		MemoryPeak: single(dir, "memory/memory.max_usage_in_bytes"),
		PIDs:       single(dir, "pids/pids.current"),
	}
}

// single returns the number in a file.
func single(dir, name string) int64 {
	raw, _ := os.ReadFile(filepath.Join(dir, name))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n
}

// field returns the number after a word in a file.
func field(dir, name, word string) int64 {
	raw, _ := os.ReadFile(filepath.Join(dir, name))
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == word {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}

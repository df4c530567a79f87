package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The use of a container is read from control groups of both versions.
func TestUsage(t *testing.T) {
	want := usage{CPU: 1500 * time.Millisecond, Memory: 700, MemoryPeak: 2000, PIDs: 7}
	for name, files := range map[string]map[string]string{
		"version 1": {
			"cpuacct/cpuacct.usage": "1500000000\n", "memory/memory.usage_in_bytes": "1000\n",
			"memory/memory.max_usage_in_bytes": "2000\n",
			"memory/memory.stat":               "inactive_file 5\ntotal_inactive_file 300\n",
			"pids/pids.current":                "7\n",
		},
		"version 2": {
			"cgroup.controllers": "cpu memory pids\n", "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
			"memory.current": "1000\n", "memory.peak": "2000\n",
			"memory.stat": "inactive_file 300\n", "pids.current": "7\n",
		},
	} {
		dir := t.TempDir()
		for file, text := range files {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := readUsage(dir); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if got := readUsage(t.TempDir()); got != (usage{}) {
		t.Errorf("nothing to read: got %+v", got)
	}
}

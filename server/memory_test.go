package server

import (
	"os"
	"testing"
	"testing/fstest"
)

func TestAvailableMemory(t *testing.T) {
	const info = "MemTotal:        8000000 kB\nMemFree:         1 kB\n"
	tests := []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, 1 << 30},
		{"machine", map[string]string{"proc/meminfo": info}, 8000000 << 10},
		{"version 2", map[string]string{"proc/meminfo": info, "proc/self/cgroup": "0::/system.slice/berth.service\n",
			"sys/fs/cgroup/system.slice/memory.max":               "3000000000\n",
			"sys/fs/cgroup/system.slice/berth.service/memory.max": "max\n"}, 3000000000},
		{"version 1", map[string]string{"proc/meminfo": info, "proc/self/cgroup": "5:cpu,memory:/a\n4:pids:/b\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2000000000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n"}, 2000000000},
		{"in a container, by the path of its host",
			map[string]string{"proc/meminfo": info, "proc/self/cgroup": "0::/docker/abc\n",
				"sys/fs/cgroup/memory.max": "1000000000\n"}, 1000000000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := availableMemory(root); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if got := availableMemory(os.DirFS("/")); got < minMemory/4 || got > 1<<50 {
		t.Errorf("this machine: got %d", got)
	}
}

func TestPlanMemory(t *testing.T) {
	for _, available := range []int64{0, 1 << 28, 1 << 30, 1 << 36} {
		if p := planMemory(available); p.limit < minMemory || p.readers+p.bodies+p.decoding > p.limit/2 {
			t.Errorf("of %d: got %+v", available, p)
		}
	}
}

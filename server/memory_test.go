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

// The memory that pools may use is the machine's, or what a control group leaves if that is less, in both versions.
func TestReadMemory(t *testing.T) {
	const g = 1 << 30
	for name, c := range map[string]struct {
		files            map[string]string
		available, total int64
	}{
		"machine":  {nil, 8 * g, 16 * g},
		"no limit": {map[string]string{"memory.max": "max\n", "memory.current": "5\n"}, 8 * g, 16 * g},
		"version 2": {map[string]string{"memory.max": "4294967296\n", "memory.current": "3221225472\n",
			"memory.stat": "anon 7\ninactive_file 1073741824\n"}, 2 * g, 4 * g},
		"below": {map[string]string{"unit/memory.max": "4294967296\n", "unit/memory.current": "3221225472\n"},
			1 * g, 4 * g},
		"version 1": {map[string]string{"memory/memory.limit_in_bytes": "2147483648\n",
			"memory/memory.usage_in_bytes": "2147483648\n",
			"memory/memory.stat":           "inactive_file 0\ntotal_inactive_file 4096\n"}, 4096, 2 * g},
		"version 1 without a limit": {map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n",
			"memory/memory.usage_in_bytes": "1\n"}, 8 * g, 16 * g},
		"version 1 below": {map[string]string{"memory/box/memory.limit_in_bytes": "1073741824\n",
			"memory/box/memory.usage_in_bytes": "0\n"}, 1 * g, 1 * g},
		"more is used": {map[string]string{"memory.max": "100\n", "memory.current": "200\n"}, 0, 100},
	} {
		root := fstest.MapFS{
			"proc/meminfo":     {Data: []byte("MemTotal:  16777216 kB\nMemFree:  1 kB\nMemAvailable:  8388608 kB\n")},
			"proc/self/cgroup": {Data: []byte("4:memory:/box\n0::/unit\n")},
		}
		for path, text := range c.files {
			root["sys/fs/cgroup/"+path] = &fstest.MapFile{Data: []byte(text)}
		}
		if available, total := readMemory(root); available != c.available || total != c.total {
			t.Errorf("%s: got %d of %d, want %d of %d", name, available, total, c.available, c.total)
		}
	}
	if available, total := readMemory(fstest.MapFS{}); available != 0 || total != 0 {
		t.Errorf("got %d of %d of nothing, want 0 of 0", available, total)
	}
	if available, total := spareMemory(); available <= 0 || total < available {
		t.Errorf("this machine: got %d of %d", available, total)
	}
}

package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/sandbox"
)

func TestParseMountinfo(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  Hierarchy
	}{
		{
			name: "Version1",
			lines: []string{
				"22 1 254:0 / / rw,relatime - ext4 /dev/root rw",
				"33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct",
				"34 32 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
				"35 32 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
				"36 32 0:32 / /sys/fs/cgroup/net_cls rw - cgroup cgroup rw,net_cls",
				"37 32 0:33 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd",
			},
			want: Hierarchy{v1: map[string]string{
				"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
				"memory": "/sys/fs/cgroup/memory", "pids": "/sys/fs/cgroup/pids",
				"name=systemd": "/sys/fs/cgroup/systemd",
			}},
		},
		{
			name:  "Version2",
			lines: []string{"30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"},
			want:  Hierarchy{v2: "/sys/fs/cgroup", v1: map[string]string{}},
		},
		{
			name: "BothAndNoise",
			lines: []string{
				"",
				"not a mount at all - ",
				"44 32 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
				"45 32 0:27 / /somewhere/else rw - cgroup2 cgroup2 rw",
				"34 32 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
			},
			want: Hierarchy{v2: "/sys/fs/cgroup/unified", v1: map[string]string{"memory": "/sys/fs/cgroup/memory"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parseMountinfo(strings.NewReader(strings.Join(tt.lines, "\n")))
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(Hierarchy{})); diff != "" {
				t.Errorf("parseMountinfo: (-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add("33 32 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu")
	f.Add("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
	f.Fuzz(func(t *testing.T, s string) {
		h := parseMountinfo(strings.NewReader(s))
		for c := range h.v1 {
			if !slices.Contains(v1Joined, c) {
				t.Errorf("parseMountinfo: got controller %q, want one of %q", c, v1Joined)
			}
		}
	})
}

// controlDir returns a directory with empty control files, like a kernel's.
func controlDir(t *testing.T, parent string, files ...string) string {
	t.Helper()
	dir := filepath.Join(parent, "id")
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// readAll returns the contents of the files of dir.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(raw)
	}
	return got
}

func TestCgroupLimits(t *testing.T) {
	limits := sandbox.Limits{Memory: 1 << 30, CPU: 1.5, PIDs: 10}

	t.Run("Version2", func(t *testing.T) {
		root := t.TempDir()
		control := filepath.Join(root, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("cpuset memory"), 0o644); err != nil {
			t.Fatal(err)
		}
		dir := controlDir(t, root, "memory.max", "memory.swap.max", "cpu.max", "pids.max")
		c := Cgroup{v2: dir, unified: true}
		if err := c.Create(limits, 300); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "300",
		}
		if diff := cmp.Diff(want, readAll(t, dir)); diff != "" {
			t.Errorf("control files: (-want +got)\n%s", diff)
		}
		// The kernel would merge them; a file is overwritten at its start.
		if got, _ := os.ReadFile(control); !strings.HasPrefix(string(got), "+cpu +pids") {
			t.Errorf("subtree_control: got %q, want prefix %q", got, "+cpu +pids")
		}
	})

	t.Run("Version1WithoutSwap", func(t *testing.T) {
		root := t.TempDir()
		dir := controlDir(t, root, "memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.cfs_period_us", "pids.max")
		c := Cgroup{v1: map[string]string{"memory": dir, "cpu": dir, "pids": dir}}
		if err := c.Create(limits, 300); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"memory.limit_in_bytes": "1073741824", "cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000",
			"pids.max": "300",
		}
		if diff := cmp.Diff(want, readAll(t, dir)); diff != "" {
			t.Errorf("control files: (-want +got)\n%s", diff)
		}
	})

	t.Run("NoLimitNoSandbox", func(t *testing.T) {
		dir := controlDir(t, t.TempDir(), "memory.max", "cpu.max") // no pids.max
		if err := (Cgroup{v2: dir, unified: true}).Create(limits, 300); err == nil {
			t.Error("create without a pids controller: got no error")
		}
	})
}

func TestUsage(t *testing.T) {
	write := func(dir string, files map[string]string) {
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := Usage{CPU: 1500 * time.Microsecond, Memory: 70, PIDs: 3}

	v2 := t.TempDir()
	write(v2, map[string]string{
		"cpu.stat":       "usage_usec 1500\nuser_usec 1\n",
		"memory.current": "100\n",
		"memory.stat":    "anon 5\ninactive_file 30\n",
		"pids.current":   "3\n",
		"memory.events":  "low 0\noom 9\noom_kill 2\noom_group_kill 0\n",
	})
	if n, err := (Cgroup{v2: v2, unified: true}).OOMKills(); n != 2 || err != nil {
		t.Errorf("version 2: got %d kills, %v, want 2", n, err)
	}
	if got := (Cgroup{v2: v2, unified: true}).Usage(); got != want {
		t.Errorf("version 2: got %+v, want %+v", got, want)
	}

	v1 := t.TempDir()
	write(v1, map[string]string{
		"cpuacct.usage":         "1500000\n",
		"memory.usage_in_bytes": "100\n",
		"memory.stat":           "inactive_file 1\ntotal_inactive_file 30\n",
		"pids.current":          "3\n",
		"memory.oom_control":    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
	})
	c := Cgroup{v1: map[string]string{"memory": v1, "cpuacct": v1, "pids": v1}}
	if got := c.Usage(); got != want {
		t.Errorf("version 1: got %+v, want %+v", got, want)
	}

	if got := (Cgroup{v2: filepath.Join(v2, "gone"), unified: true}).Usage(); got != (Usage{}) {
		t.Errorf("no group: got %+v, want zero", got)
	}
}

func TestParsePressure(t *testing.T) {
	if got := parsePressure(
		"some avg10=98.60 avg60=98.79 avg300=97.74 total=12140991474\nfull avg10=0.00 avg60=0.00\n"); got == nil ||
		*got < 0.985 || *got > 0.987 {
		t.Errorf("got %v, want 0.986", got)
	}
	if got := parsePressure("some avg10=0.00 avg60=0.00\n"); got == nil || *got != 0 {
		t.Errorf("got %v, want 0", got)
	}
	for _, text := range []string{"", "some avg10=NaN avg60=0", "some avg10=1e9 ", "full avg10=1.00 "} {
		if got := parsePressure(text); got != nil {
			t.Errorf("%q: got %v, want nil", text, *got)
		}
	}
}

package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestPosture inspects a running sandbox from both sides: its privileges inside, and what its
// processes could do to the host if gVisor failed.
func TestPosture(t *testing.T) {
	t.Setenv("BERTH_TEST_SECRET", "berth-canary-77ab")
	d := openTest(t, drivertest.StateDir(t))
	b := drivertest.Start(t, d, sandbox.Spec{ID: "posture", Template: drivertest.Template(t)})
	s, err := d.base.Find("posture")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Inside", func(t *testing.T) { postureInside(t, b) })
	t.Run("Processes", func(t *testing.T) { postureProcesses(t, s) })
	t.Run("Network", func(t *testing.T) { postureNetwork(t, s) })
	t.Run("Directory", func(t *testing.T) { postureDirectory(t, s) })
}

// dockerCapabilities are CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID
// SETPCAP NET_BIND_SERVICE SYS_CHROOT AUDIT_WRITE SETFCAP.
const dockerCapabilities = "00000000a00405fb"

// goferCapabilities are CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID SYS_CHROOT.
const goferCapabilities = "000000000004001f"

func postureInside(t *testing.T, b *drivertest.Box) {
	caps := func(who string) map[string]string {
		m := make(map[string]string)
		for line := range strings.Lines(b.Must(who + "cat /proc/self/status")) {
			if k, v, ok := strings.Cut(line, ":"); ok {
				m[k] = strings.TrimSpace(v)
			}
		}
		return m
	}
	if got := caps(""); got["CapEff"] != "0000000000000000" || got["CapPrm"] != "0000000000000000" {
		t.Errorf("capabilities of the user: got %q and %q, want none", got["CapEff"], got["CapPrm"])
	}
	if got := caps("sudo "); got["CapEff"] != dockerCapabilities || got["CapBnd"] != dockerCapabilities {
		t.Errorf("capabilities of root: got %q of %q, want %q", got["CapEff"], got["CapBnd"], dockerCapabilities)
	}
	for _, file := range []string{"kcore", "kmsg", "kallsyms", "keys", "timer_list", "sched_debug", "acpi", "scsi",
		"config.gz", "latency_stats"} {
		if r := b.Sh("test -e /proc/" + file); r.Code == 0 {
			t.Errorf("/proc/%s exists", file)
		}
	}
	for _, tt := range []struct{ script, want string }{
		{"hostname", hostname},
		{"cat /etc/hostname", hostname},
		{"cat /etc/resolv.conf", "nameserver 127.0.0.1"},
		{"getent hosts localhost | cut -d' ' -f1", "::1"},
		{"ls /dev", "fd\nfull\nnet\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero"},
		{"ls /sys/block /sys/fs/cgroup", "/sys/block:\n\n/sys/fs/cgroup:"},
		{"stat -c '%u %g %a' /mnt/data", "1000 1000 755"},
		{"stat -c %a /", "755"},
		{"df --output=size /tmp | tail -1", strconv.FormatInt(sandbox.DefaultLimits.Disk>>10, 10)},
		{"ps -e -o comm= | head -1", "guest"},
	} {
		if got := strings.TrimSpace(b.Must(tt.script)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.script, got, tt.want)
		}
	}
	for _, script := range []string{
		"echo 1 | sudo tee /sys/kernel/x", "sudo mount -t tmpfs x /mnt", "sudo mount -o remount,rw /sys",
		"echo b | sudo tee /proc/sysrq-trigger", "sudo chroot /proc/1/root ls /.berth/host",
		"sudo nsenter -t 1 -m true",
	} {
		if r := b.Sh(script); r.Code == 0 {
			t.Errorf("%s: got no error", script)
		}
	}
}

// postureProcesses inspects the sandbox's processes on the host.
func postureProcesses(t *testing.T, s instance) {
	pids := processesOf(t, s)
	if len(pids) < 3 {
		t.Fatalf("processes: got %d, want sentry, gofer and stubs", len(pids))
	}
	gofers := 0
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has just ended
		}
		field := func(name string) string {
			for line := range strings.Lines(string(status)) {
				if v, ok := strings.CutPrefix(line, name+":"); ok {
					return strings.TrimSpace(v)
				}
			}
			return ""
		}
		if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); err == nil &&
			strings.TrimSpace(string(got)) != strconv.Itoa(sandbox.OOMScoreAdj) {
			t.Errorf("process %d: got oom_score_adj %s, want %d", pid, got, sandbox.OOMScoreAdj)
		}
		if got := field("Seccomp"); got != "2" {
			t.Errorf("process %d: got seccomp mode %s, want 2", pid, got)
		}
		if env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); strings.Contains(string(env), "canary") {
			t.Errorf("process %d: has the server's environment", pid)
		}
		for _, ns := range []string{"mnt", "net", "ipc", "uts", "pid_for_children"} {
			mine, _ := os.Readlink("/proc/self/ns/" + ns)
			theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			if theirs == "" || theirs == mine {
				t.Errorf("process %d: %s namespace: got the server's", pid, ns)
			}
		}
		// The gofer opens files of the host. All others, the sentry first, have no capabilities
		// and, under root, the user nobody.
		want := "0000000000000000"
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(command), "runsc-gofer") {
			want = goferCapabilities
			gofers++
		} else if got := field("Uid"); os.Geteuid() == 0 && strings.HasPrefix(got, "0\t") {
			t.Errorf("process %d: is root", pid)
		}
		for _, set := range []string{"CapEff", "CapPrm"} {
			if got := field(set); got != want {
				t.Errorf("process %d: got %s %s, want %s", pid, set, got, want)
			}
		}
	}
	if gofers != 1 {
		t.Errorf("processes with the gofer's capabilities: got %d, want 1", gofers)
	}
	if sid := sessionOf(t, pids[0]); sid == sessionOf(t, os.Getpid()) {
		t.Error("the sentry is in the server's session")
	}
}

// sessionOf returns the session id of a process.
func sessionOf(t *testing.T, pid int) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')'):]))
	return f[4]
}

// postureNetwork inspects the namespace from which the sentry copied its network.
func postureNetwork(t *testing.T, s instance) {
	for _, pid := range processesOf(t, s) {
		postureInterfaces(t, pid)
	}
}

func postureInterfaces(t *testing.T, sentry int) {
	dev, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", sentry))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(dev)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if !slices.Equal(names, []string{"lo"}) {
		t.Errorf("interfaces: got %q, want only lo", names)
	}
	for _, table := range []string{"route", "ipv6_route"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", sentry, table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			if !strings.HasPrefix(line, "Iface") && !strings.HasSuffix(strings.TrimSpace(line), "lo") {
				t.Errorf("%s: got %q", table, line)
			}
		}
	}
}

// postureDirectory checks what other users of the host can access.
func postureDirectory(t *testing.T, s instance) {
	for _, dir := range []string{s.dir, s.path("run"), filepath.Dir(s.dir)} {
		fi, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := fi.Mode().Perm(); got != 0o700 {
			t.Errorf("%s: got mode %v, want 0700", dir, got)
		}
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		switch {
		case f[4] == s.path("run"):
			if !strings.Contains(f[5], "nosuid,nodev,noexec") {
				t.Errorf("run: got options %q, want nosuid,nodev,noexec", f[5])
			}
		case strings.HasPrefix(f[4], s.dir):
			t.Errorf("the host sees the mount %s", f[4])
		}
	}
}

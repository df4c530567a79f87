package docker

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// rootCapabilities are CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP
// NET_BIND_SERVICE SYS_CHROOT AUDIT_WRITE SETFCAP.
const rootCapabilities = "00000000a00405fb"

// guestCapabilities are rootCapabilities and NET_ADMIN.
const guestCapabilities = "00000000a00415fb"

const noCapabilities = "0000000000000000"

// TestPosture inspects a running sandbox from both sides: its privileges inside, and its
// processes on the engine's machine.
func TestPosture(t *testing.T) {
	host := dockertest.Host(t)
	t.Setenv("BERTH_TEST_SECRET", "berth-canary-77ab")
	d := openTest(t, drivertest.StateDir(t), Options{Host: host})
	b := drivertest.Start(t, d, sandbox.Spec{ID: "posture", Template: drivertest.Template(t)})
	t.Run("Inside", func(t *testing.T) { postureInside(t, b) })
	t.Run("Process", func(t *testing.T) { postureProcess(t, d) })
	t.Run("Relay", func(t *testing.T) { postureRelay(t, b) })
}

func postureInside(t *testing.T, b *drivertest.Box) {
	user, root := fields(b.Must("cat /proc/self/status")), fields(b.Must("sudo cat /proc/self/status"))
	for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
		if got := user[set]; got != noCapabilities {
			t.Errorf("the user's %s: got %s, want none", set, got)
		}
	}
	for _, set := range []string{"CapEff", "CapBnd"} {
		if got := root[set]; got != rootCapabilities {
			t.Errorf("root's %s: got %s, want %s", set, got, rootCapabilities)
		}
	}
	if got := root["Seccomp"]; got != "2" {
		t.Errorf("seccomp mode: got %s, want 2", got)
	}
	for _, path := range masked {
		// A masked file is the null device, a masked directory an empty tmpfs.
		if got := b.Sh("sudo sh -c 'test ! -e " + path + " || cat " + path + " " + path +
			"/* 2>/dev/null | head -c 100'").Stdout; got != "" {
			t.Errorf("%s: got %q, want nothing", path, got)
		}
	}
	for _, tt := range []struct{ script, want string }{
		{"hostname", hostname},
		{"cat /etc/hostname", hostname},
		{"tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo"},
		{"cat /sys/class/net/lo/operstate", "unknown"}, // the state of lo when it is up
		{"ls /dev", "fd\nfull\nmqueue\nnet\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero"},
		{"stat -c '%u %g %a' /mnt/data", "1000 1000 755"},
		{"stat -c %a /", "755"},
		{"df --output=size -B1 /dev/shm | tail -1", fmt.Sprint(sandbox.DefaultLimits.Memory / 2)},
		{"ps -p 1 -o comm=", "guest"},
		{"stat -c '%u %a' /.berth/guest /.berth/run", "0 755\n0 700"},
		{"cat /proc/self/cgroup | cut -d: -f3 | sort -u", "/"},
	} {
		if got := strings.TrimSpace(b.Must(tt.script)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.script, got, tt.want)
		}
	}
	for _, script := range []string{
		"ls /.berth/run", "sudo rm /.berth/guest", "sudo touch /.berth/x", "sudo mount -o remount,rw /.berth",
		"sudo umount /.berth/run",
		"sudo mount -t tmpfs x /mnt", "sudo mount -o remount,rw /sys", "sudo unshare -n true",
		"sudo nsenter -t 1 -m true", "unshare -U true",
		"echo 1 | sudo tee /sys/kernel/x", "echo b | sudo tee /proc/sysrq-trigger",
		"echo x | sudo tee /proc/sys/kernel/core_pattern",
		"echo max | sudo tee /sys/fs/cgroup/memory.max",
		"echo -1 | sudo tee /sys/fs/cgroup/memory/memory.limit_in_bytes",
		"sudo ip link add type dummy", "sudo cat /proc/1/environ", "sudo sh -c 'ls -l /proc/1/fd/'", "sudo dmesg",
		"sudo chroot /proc/1/root ls /run/docker.sock",
		"ls /run/docker.sock /var/run/docker.sock",
	} {
		if r := b.Sh(script); r.Code == 0 {
			t.Errorf("%s: got no error", script)
		}
	}
}

// postureProcess inspects the guest from the engine's machine, which is this one.
func postureProcess(t *testing.T, d *Driver) {
	name, state, err := d.find(t.Context(), "posture")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", state.Pid))
	if err != nil {
		t.Skipf("skipped: the engine is not on this machine: %v", err)
	}
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", state.Pid)); err != nil ||
		strings.TrimSpace(string(got)) != fmt.Sprint(sandbox.OOMScoreAdj) {
		t.Errorf("oom_score_adj: got %s, %v, want %d", got, err, sandbox.OOMScoreAdj)
	}
	f := fields(string(status))
	for set, want := range map[string]string{"CapEff": guestCapabilities, "CapPrm": guestCapabilities,
		"CapInh": noCapabilities, "CapBnd": guestCapabilities, "CapAmb": noCapabilities, "Seccomp": "2"} {
		if f[set] != want {
			t.Errorf("the guest's %s: got %s, want %s", set, f[set], want)
		}
	}
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", state.Pid)); err != nil || strings.Contains(string(env),
		"canary") {
		t.Errorf("the guest has the server's environment (%v)", err)
	}
	for _, ns := range []string{"mnt", "net", "ipc", "uts", "pid", "cgroup"} {
		mine, _ := os.Readlink("/proc/self/ns/" + ns)
		theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", state.Pid, ns))
		if theirs == "" || theirs == mine {
			t.Errorf("%s namespace: got the server's", ns)
		}
	}
	c, err := d.client.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := c.Container.HostConfig
	if h.Privileged || h.NetworkMode != "none" || h.PidMode != "" || h.UTSMode != "" || len(h.Binds) > 0 ||
		h.MemorySwap != h.Memory {
		t.Errorf("the container: got %+v", h)
	}
	if len(h.Devices) != 1 || h.Devices[0].PathOnHost != tunDevice {
		t.Errorf("devices: got %+v, want %s", h.Devices, tunDevice)
	}
	for _, m := range c.Container.Mounts {
		if m.RW && m.Destination != guestRunDir && m.Destination != "/dev/pts" {
			t.Errorf("a writable mount: %+v", m)
		}
	}
	if !slices.Equal(h.MaskedPaths, masked) || !slices.Equal(h.ReadonlyPaths, readOnly) {
		t.Errorf("the engine masks %q, and makes %q read-only", h.MaskedPaths, h.ReadonlyPaths)
	}
}

// postureRelay inspects the process that carries the server's connection.
func postureRelay(t *testing.T, b *drivertest.Box) {
	relays := strings.Fields(
		b.Must("ps -e -o pid=,ppid=,args= | awk '$2 == 0 && $1 != 1 && $4 == \"dial\" {print $1}'"))
	if len(relays) != 1 {
		t.Fatalf("relays: got %q, want one", relays)
	}
	if got := fields(b.Must("cat /proc/" + relays[0] + "/status"))["CapEff"]; got != guestCapabilities {
		t.Errorf("the relay's capabilities: got %s, want %s", got, guestCapabilities)
	}
	if r := b.Sh("ls /proc/" + relays[0] + "/fd; kill " + relays[0]); r.Code == 0 {
		t.Errorf("the user may signal the relay: %+v", r)
	}
	// Root may kill it: the server loses its connection, and makes another.
	b.Last("sudo kill -9 " + relays[0])
	b.Answers()
}

// fields returns the lines of a /proc/PID/status by their names.
func fields(status string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(status) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

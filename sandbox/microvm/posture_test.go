package microvm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/testsuite"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestPosture inspects a running sandbox from both sides: its privileges inside, and what QEMU
// could do to the host if the machine took it over.
func TestPosture(t *testing.T) {
	if !testsuite.HasAttacks() {
		testsuite.SkipInCore(t)
	}
	t.Setenv("BERTH_TEST_SECRET", "berth-canary-77ab")
	d := openTest(t, drivertest.StateDir(t))
	b := drivertest.Start(t, d, sandbox.Spec{ID: "posture", Template: drivertest.Template(t)})
	s, err := d.base.Find("posture")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Inside", func(t *testing.T) { postureInside(t, b) })
	t.Run("Hardware", func(t *testing.T) { attackHardware(t, b) })
	t.Run("QEMU", func(t *testing.T) { postureQEMU(t, s) })
	t.Run("Files", func(t *testing.T) { postureFiles(t, s) })
	t.Run("Root", func(t *testing.T) { postureRoot(t, d, s) })
	t.Run("Directory", func(t *testing.T) { postureDirectory(t, s) })
}

// statusFields reads a file of the form of /proc/self/status.
func statusFields(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			m[k] = strings.Join(strings.Fields(v), " ")
		}
	}
	return m
}

// rootCapabilities are Docker's without NET_RAW and MKNOD.
const rootCapabilities = "00000000a00405fb"

func postureInside(t *testing.T, b *drivertest.Box) {
	if got := statusFields(b.Must("cat /proc/self/status")); got["CapEff"] != "0000000000000000" ||
		got["CapPrm"] != "0000000000000000" {
		t.Errorf("capabilities of the user: got %q and %q, want none", got["CapEff"], got["CapPrm"])
	}
	if got := statusFields(b.Must("sudo cat /proc/self/status")); got["CapEff"] != rootCapabilities ||
		got["CapBnd"] != rootCapabilities {
		t.Errorf("capabilities of root: got %q of %q, want %q", got["CapEff"], got["CapBnd"], rootCapabilities)
	}
	for _, tt := range []struct{ script, want string }{
		{"hostname; cat /etc/hostname /etc/resolv.conf", hostname + "\n" + hostname + "\nnameserver 127.0.0.1"},
		{"ls /dev", "fd\nfull\nnet\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero"},
		{"stat -c '%u %g %a' /mnt/data; stat -c %a /", "1000 1000 755\n755"},
		{"ps -e -o comm= | head -1", "guest"},
		{"tail -n +3 /proc/net/dev | cut -d: -f1; getent ahosts localhost >/dev/null && cat /sys/class/net/lo/carrier",
			"lo\n1"},
		{"cat /proc/1/oom_score_adj /proc/self/oom_score_adj", "-1000\n0"},
		{"test $(df --output=size -B1M / | tail -1) -gt 9000 && echo large", "large"},
	} {
		got := strings.Join(strings.Fields(b.Must(tt.script)), "\n")
		if want := strings.Join(strings.Fields(tt.want), "\n"); got != want {
			t.Errorf("%s: got %q, want %q", tt.script, got, tt.want)
		}
	}
	for _, script := range []string{
		"echo 1 | sudo tee /sys/kernel/x", "sudo mount -t tmpfs x /mnt", "sudo mount -o remount,rw /sys",
		"echo b | sudo tee /proc/sysrq-trigger", "sudo nsenter -t 1 -m true", "sudo insmod /nothing.ko",
		"echo x | sudo tee -a /.berth/guest",
	} {
		if r := b.Sh(script); r.Code == 0 {
			t.Errorf("%s: got no error", script)
		}
	}
}

// attackHardware writes, as root of the machine, to every place where its kernel exposes QEMU's
// devices: each would end the machine, unmount its disks below it, or reach QEMU's devices.
func attackHardware(t *testing.T, b *drivertest.Box) {
	const mapper = `open(my $f, "<", $ARGV[0]) or exit 1; my $at = syscall(9, 0, 4096, 1, 1, fileno($f), 0); exit($at > 0 ? 0 : 1)`
	if err := b.Client.WriteFile(t.Context(), "/tmp", "map.pl", "", strings.NewReader(mapper)); err != nil {
		t.Fatal(err)
	}
	r := b.ShTimeout(`sudo sh -c '
for f in /sys/bus/pci/devices/*/config /sys/bus/pci/devices/*/remove /sys/bus/pci/devices/*/reset /sys/bus/pci/devices/*/resource* /sys/bus/pci/rescan \
	/sys/bus/virtio/drivers/*/unbind /sys/bus/virtio/devices/*/driver_override /sys/bus/platform/drivers/*/unbind /sys/block/*/queue/* /sys/block/*/ro /sys/module/*/parameters/* \
	/sys/class/virtio-ports/*/* /sys/class/tty/*/* /sys/devices/system/cpu/*/online /sys/devices/system/memory/*/state /sys/power/* /sys/kernel/* /sys/kernel/mm/*/* /sys/fs/ext4/*/* /sys/fs/cgroup/*/* \
	/sys/firmware/*/* /proc/sys/kernel/* /proc/sys/vm/* /proc/sys/user/* /proc/sys/fs/* /proc/bus/pci/*/* /proc/irq/*/* /proc/sysrq-trigger /proc/mtrr /proc/driver/*/* /proc/fs/*/* /proc/scsi/scsi; do
	[ -f "$f" ] && (printf 1 >"$f") 2>/dev/null && echo "$f was written"
done
for f in /sys/bus/pci/devices/*/resource[0-9]*; do
	perl /tmp/map.pl "$f" && echo "$f was mapped"
done
for f in /sys/bus/pci/devices/*/resource[0-9]* /sys/bus/pci/devices/*/rom /dev/mem /dev/port /proc/kcore; do
	[ "$(head -c 1 "$f" 2>/dev/null | wc -c)" = 1 ] && echo "$f was read"
done
for d in /sys /proc /proc/sys /dev; do mount -o remount,rw "$d" 2>/dev/null && echo "$d was remounted"; done
mount -t ext4 -o ro /dev/vda /mnt 2>/dev/null && echo "a disk was mounted"
mount -t debugfs none /mnt 2>/dev/null && echo "debugfs was mounted"
mount -t devtmpfs none /mnt 2>/dev/null && echo "devtmpfs was mounted"
yes | head -c 3000000 >/proc/1/fd/2; yes | head -c 3000000 >/proc/1/fd/1
kill -9 1; kill -STOP 2; echo done'`, 2*time.Minute)
	if r.Stdout != "done\n" {
		t.Errorf("got %+v, want only done", r)
	}
	b.Answers()
	if got := b.Must(
		"cat /proc/sys/user/max_user_namespaces /proc/sys/kernel/modules_disabled /proc/sys/kernel/kexec_load_disabled; grep Seccomp: /proc/self/status"); strings.Join(strings.Fields(got),
		" ") != "0 1 1 Seccomp: 2" {
		t.Errorf("the kernel's settings: got %q", got)
	}
}

// postureQEMU inspects the process on the host.
func postureQEMU(t *testing.T, s instance) {
	pid, alive, _ := s.qemu()
	if !alive {
		t.Fatal("QEMU is not alive")
	}
	if pids, err := s.cgroup.Procs(); err != nil || !slices.Equal(pids, []int{pid}) {
		t.Errorf("processes: got %v, %v, want only QEMU, %d", pids, err, pid)
	}
	if got := strings.TrimSpace(readFile(t, fmt.Sprintf("/proc/%d/oom_score_adj", pid))); got != strconv.Itoa(
		sandbox.OOMScoreAdj) {
		t.Errorf("oom_score_adj: got %s, want %d", got, sandbox.OOMScoreAdj)
	}
	rec, err := s.record()
	if err != nil {
		t.Fatal(err)
	}
	status := statusFields(readFile(t, fmt.Sprintf("/proc/%d/status", pid)))
	ids := strings.TrimSpace(strings.Repeat(strconv.Itoa(rec.UID)+" ", 4))
	for field, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2", "Uid": ids, "Gid": ids, "Groups": "",
	} {
		if got := status[field]; got != want {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
	if rec.UID < firstUID {
		t.Errorf("user: got %d, want one of the driver's range", rec.UID)
	}
	for _, ns := range []string{"mnt", "net", "ipc", "uts", "pid"} {
		mine, _ := os.Readlink("/proc/self/ns/" + ns)
		theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if theirs == "" || theirs == mine {
			t.Errorf("%s namespace: got the server's", ns)
		}
	}
	if env := readFile(t, fmt.Sprintf("/proc/%d/environ", pid)); env != "" {
		t.Errorf("environment: got %q, want none", env)
	}
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/net/dev", pid))) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) != "lo" {
			t.Errorf("interface %s", name)
		}
	}
	limits := readFile(t, fmt.Sprintf("/proc/%d/limits", pid))
	for line := range strings.Lines(limits) {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Max core file size") && f[4] != "0",
			strings.HasPrefix(line, "Max file size") && f[3] != strconv.FormatInt(rec.Limits.Disk, 10):
			t.Errorf("got %s", line)
		}
	}
}

// postureFiles inspects QEMU's open files.
func postureFiles(t *testing.T, s instance) {
	pid, _, _ := s.qemu()
	rec, err := s.record()
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // it has just been closed
		}
		info := readFile(t, fmt.Sprintf("/proc/%d/fdinfo/%s", pid, e.Name()))
		readOnly := strings.HasSuffix(statusFields(info)["flags"], "0")
		switch {
		case strings.HasPrefix(target, "socket:"), strings.HasPrefix(target, "anon_inode:"), strings.HasPrefix(target,
			"pipe:"),
			target == s.path(diskFile), target == s.path("qemu.log"), target == "/dev/null":
		case target == rec.Image && readOnly:
		default:
			t.Errorf("descriptor %s: got %s (read-only: %t)", e.Name(), target, readOnly)
		}
	}
}

// postureRoot inspects the files that QEMU could open.
func postureRoot(t *testing.T, d *Driver, s instance) {
	pid, _, _ := s.qemu()
	root := fmt.Sprintf("/proc/%d/root", pid)
	for _, path := range []string{"/proc", "/sys", "/root", "/home", "/run", "/var", "/tmp", "/etc/passwd",
		"/usr/bin/sh", d.opts.StateDir, "/dev/kvm"} {
		if _, err := os.Lstat(root + path); err == nil {
			t.Errorf("QEMU sees %s", path)
		}
	}
	mounts := 0
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/mountinfo", pid))) {
		f := strings.Fields(line)
		mounts++
		if !slices.Contains(strings.Split(f[5], ","), "ro") || !slices.Contains(strings.Split(f[5], ","), "nosuid") {
			t.Errorf("mount %s: got options %s, want ro and nosuid", f[4], f[5])
		}
	}
	if mounts < 2 {
		t.Errorf("got %d mounts", mounts)
	}
}

// postureDirectory checks what other users of the host can access.
func postureDirectory(t *testing.T, s instance) {
	for _, dir := range []string{s.dir, s.path("run"), s.path(sealed), filepath.Dir(s.dir)} {
		fi, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := fi.Mode().Perm(); got != 0o700 {
			t.Errorf("%s: got mode %v, want 0700", dir, got)
		}
	}
	if mounts := readFile(t, "/proc/self/mountinfo"); strings.Contains(mounts, " "+s.dir) {
		t.Error("the host sees a mount of the sandbox")
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

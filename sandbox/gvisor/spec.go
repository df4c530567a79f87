package gvisor

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// capabilities are those of root in the sandbox: Docker's set without NET_RAW and MKNOD. They
// apply inside gVisor; the sentry itself has none on the host.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
	"CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// guestCapability lets the guest create its route for addresses. The guest removes it from the
// bounding set before it starts a program. gVisor requires it in the bounding set at first.
const guestCapability = "CAP_NET_ADMIN"

// defaultPath is the guest's PATH if the Spec has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// memoryReserve is the part of the memory limit that the guest withholds from commands, for the
// sentry, the gofer and the guest itself. So a command that needs too much memory is refused
// before the cgroup kills.
const memoryReserve = 64 << 20

// ociSpec returns the config.json of the sandbox's OCI bundle. An empty image means that the
// template is mounted.
func (d *Driver) ociSpec(spec sandbox.Spec, s instance, image string) *specs.Spec {
	l := spec.Limits
	guest := append(slices.Clone(capabilities), guestCapability)
	o := &specs.Spec{
		Version: "1.1.0",
		Process: &specs.Process{
			Args: []string{guestPath},
			Cwd:  "/",
			Env:  slices.Insert(guestEnv(spec), 0, sandbox.CreatedEnv()),
			Capabilities: &specs.LinuxCapabilities{
				Bounding: guest, Effective: guest, Permitted: guest,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NPROC", Hard: uint64(l.PIDs), Soft: uint64(l.PIDs)},
				{Type: "RLIMIT_CORE"},
			},
		},
		Root:     &specs.Root{Path: s.path("rootfs")},
		Hostname: hostname,
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
				Options: []string{"mode=1777", fmt.Sprintf("size=%d", l.Memory/2)}},
			// gVisor ignores an unknown type, but because of the entry it does not mount a
			// tmpfs on an empty /tmp. That would use memory instead of disk, limited only by
			// the machine.
			{Destination: "/tmp", Type: "berth-disk", Source: "none"},
			{Destination: guestRunDir, Type: "bind", Source: s.path("run/guest"),
				Options: []string{"bind", "noexec", "nosuid"}},
		},
		Annotations: map[string]string{"dev.gvisor.tar.rootfs.upper": d.seedPath()},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
				// runsc is started in the sandbox's network namespace.
				{Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"},
			},
			// The driver sets the cgroup; from here berth-runsc reads the limits that it shows
			// in /proc.
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &l.Memory},
				CPU:    cpuResources(l.CPU),
			},
		},
	}
	if image != "" {
		d.useImage(o, image, l.Disk)
	}
	o.Mounts = append(o.Mounts, mounts(spec.Mounts)...)
	return o
}

// mounts returns the OCI form of mounts. They are outside of the sandbox's overlay: the gofer
// writes to the host's directory.
func mounts(list []sandbox.Mount) []specs.Mount {
	var mounts []specs.Mount
	for _, m := range list {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		mounts = append(mounts, specs.Mount{Destination: path.Join(sandbox.MountRoot, m.Name), Type: "bind",
			Source:  m.Path,
			Options: []string{"bind", "nodev", "nosuid", access}})
	}
	return mounts
}

// cpuResources returns the OCI form of a number of cores.
func cpuResources(cores float64) *specs.LinuxCPU {
	quota, period := int64(math.Ceil(cores*host.CPUPeriod)), uint64(host.CPUPeriod)
	return &specs.LinuxCPU{Quota: &quota, Period: &period}
}

// guestEnv returns the guest's environment: the Spec's, overridden by a few variables of the
// driver.
func guestEnv(spec sandbox.Spec) []string {
	env := []string{
		"BERTH_GUEST_SOCKET=" + guestSocket,
		"BERTH_MEMORY_LIMIT=" + strconv.FormatInt(commandMemory(spec.Limits.Memory), 10),
		"BERTH_PIDS_LIMIT=" + strconv.Itoa(spec.Limits.PIDs-spec.Limits.PIDs/8), // lower than the kernel's limit
		"BERTH_WATCH=1",
	}
	taken := make(map[string]bool)
	for _, kv := range env {
		taken[envName(kv)] = true
	}
	for _, kv := range spec.Env {
		if name := envName(kv); !taken[name] {
			taken[name] = true
			env = append(env, kv)
		}
	}
	if !taken["PATH"] {
		env = append(env, "PATH="+defaultPath)
	}
	return env
}

// commandMemory returns the part of a memory limit that commands may use.
func commandMemory(limit int64) int64 {
	return cmp.Or(max(limit-memoryReserve, limit/2), 1)
}

// envName returns the name in NAME=value.
func envName(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}

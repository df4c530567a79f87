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

// capabilities are what root in the sandbox has: Docker's set without NET_RAW and MKNOD.
// They are capabilities towards gVisor; the sentry itself holds none on the host.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
	"CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// guestCapability is for the guest alone, to make its route for addresses. Before
// it starts a program the guest takes it out of the bounding set, which gVisor
// wants it to be in at first.
const guestCapability = "CAP_NET_ADMIN"

// defaultPath is the guest's PATH unless the Spec says another.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// memoryReserve is the part of the memory limit that the guest does not hand to
// commands: the sentry, the gofer and the guest itself live on it, so that a
// command that wants too much is refused before the cgroup kills.
const memoryReserve = 64 << 20

// ociSpec returns the OCI bundle's config.json for the sandbox, whose template is an
// image or, if that is "", mounted.
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
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"mode=1777", fmt.Sprintf("size=%d", l.Memory/2)}},
			// A type that gVisor does not know is ignored, but the entry keeps it
			// from mounting a tmpfs on an empty /tmp: that would take memory
			// where disk is meant, and know no limit but the machine's.
			{Destination: "/tmp", Type: "berth-disk", Source: "none"},
			{Destination: guestRunDir, Type: "bind", Source: s.path("run/guest"), Options: []string{"bind", "noexec", "nosuid"}},
		},
		Annotations: map[string]string{"dev.gvisor.tar.rootfs.upper": d.seedPath()},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
				// runsc is started in the namespace that the sandbox is to have.
				{Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"},
			},
			// The cgroup is ours; here berth-runsc reads what to show in /proc.
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

// mounts returns the OCI form of mounts. They lie outside of the sandbox's overlay:
// what is written goes to the host's directory, by way of the gofer.
func mounts(list []sandbox.Mount) []specs.Mount {
	var mounts []specs.Mount
	for _, m := range list {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		mounts = append(mounts, specs.Mount{Destination: path.Join(sandbox.MountRoot, m.Name), Type: "bind", Source: m.Path,
			Options: []string{"bind", "nodev", "nosuid", access}})
	}
	return mounts
}

// cpuResources returns the OCI form of a number of cores.
func cpuResources(cores float64) *specs.LinuxCPU {
	quota, period := int64(math.Ceil(cores*host.CPUPeriod)), uint64(host.CPUPeriod)
	return &specs.LinuxCPU{Quota: &quota, Period: &period}
}

// guestEnv returns the guest's environment: the Spec's, over which a few names
// of ours prevail.
func guestEnv(spec sandbox.Spec) []string {
	env := []string{
		"BERTH_GUEST_SOCKET=" + guestSocket,
		"BERTH_MEMORY_LIMIT=" + strconv.FormatInt(commandMemory(spec.Limits.Memory), 10),
		"BERTH_PIDS_LIMIT=" + strconv.Itoa(spec.Limits.PIDs-spec.Limits.PIDs/8), // before the kernel's
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

// commandMemory returns how much of a memory limit commands may use.
func commandMemory(limit int64) int64 {
	return cmp.Or(max(limit-memoryReserve, limit/2), 1)
}

// envName returns the name in NAME=value.
func envName(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}

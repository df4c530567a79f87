package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox"
)

// runOptions bound the tmpfs with the guest's socket. Root in the sandbox may write there:
// filling it harms only the guest's log.
const runOptions = "mode=0700,size=1m,nr_inodes=16,nosuid,nodev,noexec"

// capabilities are those of root in the sandbox: the engine's set without NET_RAW and MKNOD.
// Commands run as another user without any until they call sudo, so no-new-privileges is not
// set.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
	"CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// masked are paths that show the engine's machine: those that engines mask, and more.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/config.gz", "/proc/interrupts", "/proc/kallsyms",
	"/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/latency_stats", "/proc/modules",
	"/proc/sched_debug", "/proc/scsi", "/proc/sys/kernel/random/boot_id", "/proc/timer_list", "/proc/timer_stats",
	"/sys/block", "/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/bpf", "/sys/kernel/debug",
	"/sys/kernel/tracing",
}

// readOnly are paths that a sandbox cannot write to, as in engines' defaults. The guest reads
// its memory use from the last one.
var readOnly = []string{"/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys/fs/cgroup"}

const (
	// pidsReserve is the number of processes and threads of a sandbox beside its commands': the
	// guest's own, and those of relays. A guest that cannot create a thread dies.
	pidsReserve = 64

	// guestThreads is the number of threads that the guest creates at its start.
	guestThreads = 24

	// memoryReserve is the part of the memory limit that the guest withholds from commands, so
	// that it ends the largest command before the kernel ends any process.
	memoryReserve = 64 << 20
)

// Create creates the container. For the first sandbox of a template it waits until the engine
// has the template's files.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) error {
	name, err := d.container(spec.ID)
	if err != nil {
		return fmt.Errorf("docker: create: %w", err)
	}
	if len(spec.Mounts) > 0 && !d.features.Mounts {
		return fmt.Errorf("docker: create %s: mounts: %w", spec.ID, errors.ErrUnsupported)
	}
	if err := sandbox.CheckMounts(spec.Mounts); err != nil {
		return fmt.Errorf("docker: create %s: %w", spec.ID, err)
	}
	if _, err := spec.Template.Directory(); err != nil {
		return fmt.Errorf("docker: create %s: %w", spec.ID, err)
	}
	tag, err := d.templates.tag(spec.Template)
	if err != nil {
		return fmt.Errorf("docker: create %s: %w", spec.ID, err)
	}
	bound, err := d.mounts.bind(spec.ID, spec.Mounts)
	if err != nil {
		return fmt.Errorf("docker: create %s: mounts: %w", spec.ID, err)
	}
	opts := client.ContainerCreateOptions{Name: name, Config: d.config(spec, tag),
		HostConfig: d.hostConfig(spec.Limits.WithDefaults())}
	opts.HostConfig.Mounts = append(opts.HostConfig.Mounts, bound...)
	_, err = d.client.ContainerCreate(ctx, opts)
	if errdefs.IsNotFound(err) { // the image is missing
		if err = d.templates.load(ctx, spec.Template, tag); err == nil {
			_, err = d.client.ContainerCreate(ctx, opts)
		}
	}
	if errdefs.IsConflict(err) {
		err = errors.Join(fs.ErrExist, err)
	} else if err != nil {
		// After a timeout the container may exist.
		err = errors.Join(err, d.remove(context.WithoutCancel(ctx), name))
	}
	if err != nil && bound != nil {
		err = errors.Join(err, d.mounts.unbind(spec.ID))
	}
	if err != nil {
		return fmt.Errorf("docker: create %s: %w", spec.ID, err)
	}
	return nil
}

// config returns the configuration of the container's process.
func (d *Driver) config(spec sandbox.Spec, image string) *container.Config {
	return &container.Config{
		Image:       image,
		Hostname:    hostname,
		User:        "0:0",
		Env:         slices.Insert(d.guestEnv(spec.Env, spec.Limits.WithDefaults()), 0, sandbox.CreatedEnv()),
		Entrypoint:  []string{guestPath},
		WorkingDir:  "/",
		Labels:      map[string]string{labelInstance: d.instance, labelSandbox: spec.ID},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGKILL", // the guest ignores all other signals
	}
}

// hostConfig returns the configuration of the container's isolation. On a shared kernel most
// ulimits count by user, and users are the same in all containers; nofile counts by process.
func (d *Driver) hostConfig(l sandbox.Limits) *container.HostConfig {
	no := false
	h := &container.HostConfig{
		NetworkMode:   "none",
		IpcMode:       container.IPCModePrivate,
		CgroupnsMode:  container.CgroupnsModePrivate,
		CapDrop:       []string{"ALL"},
		CapAdd:        capabilities,
		MaskedPaths:   masked,
		ReadonlyPaths: readOnly,
		Runtime:       d.opts.Runtime,
		Init:          &no, // the guest reaps
		OomScoreAdj:   sandbox.OOMScoreAdj,
		Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: d.guest.name, Target: guestDir, ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true}}},
		Tmpfs:         map[string]string{guestRunDir: runOptions},
		ShmSize:       l.Memory / 2,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		// The log receives only the guest's output before it listens.
		LogConfig: container.LogConfig{Type: "local",
			Config: map[string]string{"max-size": "64k", "max-file": "1", "compress": "false"}},
	}
	if d.info.MemoryLimit {
		h.Memory, h.MemorySwap = l.Memory, l.Memory
	}
	if d.info.CPUCfsQuota {
		cores := min(l.CPU, float64(max(d.info.NCPU, 1))) // engines refuse more
		h.NanoCPUs = int64(math.Ceil(cores * 1e9))
	}
	if d.info.PidsLimit {
		pids := d.pidsLimit(l.PIDs)
		h.PidsLimit = &pids
	}
	if d.features.Isolation == "docker" {
		d.shareKernel(h)
	}
	if d.features.Isolation == "gvisor" {
		h.Ulimits = []*container.Ulimit{{Name: "nproc", Soft: int64(l.PIDs), Hard: int64(l.PIDs)}}
	}
	if d.features.Routes {
		allowRoute(h)
	}
	if d.features.DiskLimit {
		h.StorageOpt = map[string]string{"size": strconv.FormatInt(l.Disk, 10)}
	}
	return h
}

// pidsLimit returns the limit of processes and threads of a sandbox on the engine's machine. A
// runtime with its own kernel has several for each of the sandbox's. It dies if it cannot
// create them, so the guest's limit must be reached first.
func (d *Driver) pidsLimit(pids int) int64 {
	if d.features.Isolation == "docker" {
		return int64(pids + pidsReserve)
	}
	return int64(256 + pids*(2+max(d.info.NCPU, 1)))
}

// guestEnv returns the guest's environment: the Spec's, overridden by a few variables of the
// driver.
func (d *Driver) guestEnv(spec []string, l sandbox.Limits) []string {
	watch := "1"
	if d.features.Isolation == "docker" {
		watch = "0" // all containers share the few watches of the machine's kernel
	}
	env := []string{
		"BERTH_GUEST_SOCKET=" + guestSocket,
		"BERTH_GUEST_LOG=" + guestLog,
		"BERTH_MEMORY_LIMIT=" + strconv.FormatInt(max(l.Memory-memoryReserve, l.Memory/2), 10),
		"BERTH_THREADS=" + strconv.Itoa(guestThreads),
		"BERTH_PIDS_LIMIT=" + strconv.Itoa(l.PIDs-l.PIDs/8), // lower than the kernel's limit
		"BERTH_WATCH=" + watch,
	}
	taken := make(map[string]bool)
	for _, kv := range env {
		taken[envName(kv)] = true
	}
	for _, kv := range spec {
		if name := envName(kv); !taken[name] {
			taken[name] = true
			env = append(env, kv)
		}
	}
	return env
}

// envName returns the name in NAME=value.
func envName(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}

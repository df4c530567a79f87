package microvm

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/guest/boot"
	"github.com/berth-run/berth/sandbox"
)

const (
	hostname = "sandbox"
	dataDir  = "/mnt/data"
	user     = 1000 // uid and gid of the user that commands run as

	// defaultPath is the guest's PATH if the Spec has none.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// guestThreads is the number of threads that the guest creates at its start, within the
	// limit.
	guestThreads = 24
)

// bootConfig returns the boot configuration of the machine.
func bootConfig(spec sandbox.Spec) boot.Config {
	return boot.Config{
		Hostname: hostname,
		Env:      slices.Insert(guestEnv(spec), 0, sandbox.CreatedEnv()),
		PIDs:     spec.Limits.PIDs,
		Memory:   spec.Limits.Memory,
		Ports:    ports,
		Mounts:   len(spec.Mounts) > 0,
		Files: []boot.File{
			{Name: "/etc/hostname", Mode: 0o644, Content: hostname + "\n"},
			{Name: "/etc/hosts", Mode: 0o644, Content: "127.0.0.1\tlocalhost " + hostname +
				"\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
			{Name: "/etc/resolv.conf", Mode: 0o644, Content: "nameserver 127.0.0.1\n"},
			{Name: dataDir + "/", Mode: 0o755, UID: user},
		},
	}
}

// guestEnv returns the guest's environment: the Spec's, overridden by a few variables of the
// driver.
func guestEnv(spec sandbox.Spec) []string {
	pids := spec.Limits.PIDs
	env := []string{
		"BERTH_PIDS_LIMIT=" + strconv.Itoa(pids-pids/8), // lower than the kernel's limit
		"BERTH_THREADS=" + strconv.Itoa(guestThreads),
		"BERTH_WATCH=1",
		"BERTH_GUEST_LOG=" + os.DevNull, // the machine's console is not read any more
	}
	path := "PATH=" + defaultPath
	for _, kv := range spec.Env {
		switch name, _, _ := strings.Cut(kv, "="); {
		case name == "PATH":
			path = kv
		case name == boot.PortsEnv || name == "BERTH_MEMORY_LIMIT" || slices.ContainsFunc(env, func(o string) bool {
			return strings.HasPrefix(o, name+"=")
		}):
		default:
			env = append(env, kv)
		}
	}
	return append(env, path)
}

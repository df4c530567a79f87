package server

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/berth-run/berth/internal/ration"
)

// A memoryPlan divides the memory of the server process.
type memoryPlan struct {
	limit    int64 // memory limit of the process
	readers  int64 // for responses that clients have not read yet
	bodies   int64 // for the bodies of requests
	decoding int64 // for decoded requests
}

// minMemory is the minimum limit of the process.
const minMemory = 256 << 20

// planMemory divides the available memory of the machine or control group. Half of it is left
// for sandboxes and the page cache.
func planMemory(available int64) memoryPlan {
	limit := max(available/2, minMemory)
	return memoryPlan{limit: limit, readers: clamp(limit/8, 32<<20, 256<<20),
		bodies: clamp(limit/8, 32<<20, 256<<20), decoding: clamp(limit/4, 64<<20, 1<<30)}
}

func clamp(n, least, most int64) int64 { return min(max(n, least), most) }

// limitMemory plans for this machine and sets the memory limit of the process, unless
// GOMEMLIMIT sets it.
func limitMemory(log *slog.Logger) memoryPlan {
	available := availableMemory(os.DirFS("/"))
	if set := debug.SetMemoryLimit(-1); set != math.MaxInt64 {
		available = 2 * set
	}
	plan := planMemory(available)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(plan.limit)
	}
	log.Debug("set memory limits", "available", available, "limit", plan.limit, "answers", plan.readers, "bodies",
		plan.bodies, "decoding", plan.decoding)
	return plan
}

// memoryPools bounds the memory of requests and responses.
type memoryPools struct{ readers, bodies, decoding *ration.Pool }

func (p memoryPlan) pools() memoryPools {
	return memoryPools{readers: pool(p.readers), bodies: pool(p.bodies), decoding: pool(p.decoding)}
}

// pool returns a pool of n bytes. One project may use half of it.
func pool(n int64) *ration.Pool { return ration.New(ration.Options{Total: n}) }

// availableMemory returns the memory of the machine, or the lowest limit of the control groups
// of this process. It returns 1 GiB if neither can be read.
func availableMemory(root fs.FS) int64 {
	if _, total := readMemory(root); total > 0 {
		return total
	}
	return 1 << 30
}

// spareMemory returns how many bytes new sandboxes can have, and how many there are in all. Both are 0 if unknown.
func spareMemory() (available, total int64) { return readMemory(os.DirFS("/")) }

// readMemory returns the memory of the machine, or of those control groups of this process that leave less: how many
// bytes are available, and how many there are in all. A number that cannot be read is 0.
func readMemory(root fs.FS) (available, total int64) {
	const unlimited = math.MaxInt64
	available, total = unlimited, unlimited
	if n, ok := readNumber(root, "proc/meminfo", "MemTotal:"); ok {
		total = n << 10
	}
	if n, ok := readNumber(root, "proc/meminfo", "MemAvailable:"); ok {
		available = n << 10
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) != 3 {
			continue
		}
		files := groupFiles{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
		if fields[1] != "" {
			if !strings.Contains(","+fields[1]+",", ",memory,") {
				continue
			}
			files = groupFiles{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
				"total_inactive_file"}
		}
		// In a container, the path may be the host's; then only the root exists.
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			if limit, left, ok := files.read(root, at); ok {
				available, total = min(available, left), min(total, limit)
			}
			if at == "/" {
				break
			}
		}
	}
	if available == unlimited {
		available = 0
	}
	if total == unlimited {
		total = 0
	}
	return available, total
}

// groupFiles names the files of a control group's memory, and the line of memory.stat with the cache that the kernel
// reclaims first.
type groupFiles struct{ root, limit, used, cache string }

// read returns the limit of a group, and how many bytes it leaves. It returns false if the group has no limit.
func (g groupFiles) read(root fs.FS, at string) (limit, left int64, ok bool) {
	dir := filepath.Join(g.root, at)
	if limit, ok = readNumber(root, filepath.Join(dir, g.limit), ""); !ok || limit <= 0 {
		return 0, 0, false
	}
	used, _ := readNumber(root, filepath.Join(dir, g.used), "")
	cache, _ := readNumber(root, filepath.Join(dir, "memory.stat"), g.cache+" ")
	return limit, min(limit, max(0, limit-used+cache)), true
}

// readNumber returns the number after the prefix of a line.
func readNumber(root fs.FS, name, prefix string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

package server

import (
	"bufio"
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
	available := int64(math.MaxInt64)
	if f, err := root.Open("proc/meminfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
				if kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil {
					available = kb << 10
				}
			}
		}
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) != 3 {
			continue
		}
		dir, name := "sys/fs/cgroup", "memory.max"
		if fields[1] != "" {
			if !strings.Contains(","+fields[1]+",", ",memory,") {
				continue
			}
			dir, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// In a container, the path may be the host's; then only the root exists.
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			text, err := fs.ReadFile(root, filepath.Join(dir, at, name))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil && n > 0 {
				available = min(available, n)
			}
			if at == "/" {
				break
			}
		}
	}
	if available == math.MaxInt64 {
		return 1 << 30
	}
	return available
}

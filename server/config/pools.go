package config

import (
	"cmp"
	"fmt"

	"github.com/berth-run/berth"
	"golang.org/x/sys/unix"
)

// defaultPool is the default size of the first pool, and defaultMaxPool what it may grow to.
const (
	defaultPool    = 2
	defaultMaxPool = 100
)

// Pool configures a pool of ready sandboxes, in addition to Containers.Pool.
type Pool struct {
	Template    string `yaml:"template"`     // name or digest. Default: Config.Template
	MemoryLimit string `yaml:"memory_limit"` // 1g, 4g, 16g or 64g: serves only containers of that size. Default: 1g
	Size        int    `yaml:"size"`         // number of sandboxes
	MaxSize     int    `yaml:"max_size"`     // what bursts of demand let it grow to. Default: Size
}

// AllPools returns the configured pools with their defaults. The first has the default template, which "" selects.
func (c *Config) AllPools() []Pool {
	all := []Pool{{Size: c.Containers.Pool, MaxSize: c.Containers.MaxPool, MemoryLimit: "1g"}}
	for _, p := range c.Containers.Pools {
		if p.Template == c.Template {
			p.Template = ""
		}
		p.MemoryLimit = cmp.Or(p.MemoryLimit, "1g")
		all = append(all, p)
	}
	return all
}

// checkPools validates the pools for a machine with this much memory. 0 means unknown.
func (c *Config) checkPools(memory int64) error {
	var sum int64
	seen := map[Pool]bool{}
	for i, p := range c.AllPools() {
		at := "containers.pool"
		if i > 0 {
			at = fmt.Sprintf("containers.pools[%d]", i-1)
		}
		limit := berth.MemoryLimits[p.MemoryLimit]
		switch kind := (Pool{Template: p.Template, MemoryLimit: p.MemoryLimit}); {
		case limit == 0:
			return fmt.Errorf("%s.memory_limit: %q is not 1g, 4g, 16g or 64g", at, p.MemoryLimit)
		case i > 0 && p.Size < 1:
			return fmt.Errorf("%s.size must be 1 or more", at)
		case i > 0 && p.MaxSize != 0 && p.MaxSize < p.Size:
			return fmt.Errorf("%s.max_size is %d: it must be size, which is %d, or more", at, p.MaxSize, p.Size)
		case p.Size > 0 && seen[kind]:
			return fmt.Errorf("%s: another pool holds sandboxes of this template and memory_limit", at)
		case p.Size > 0:
			seen[kind] = true
		}
		sum += int64(min(p.Size, 1<<20)) * limit
	}
	configured, at := c.Containers.Pool > defaultPool, "containers.pool"
	if len(c.Containers.Pools) > 0 {
		configured, at = true, "containers.pools"
	}
	if configured && memory > 0 && sum > memory {
		return fmt.Errorf("%s: the sandboxes may use %.1fG of memory in total, but this machine has %.1fG", at,
			gigabytes(sum), gigabytes(memory))
	}
	return nil
}

func gigabytes(n int64) float64 { return float64(n) / (1 << 30) }

// machineMemory returns the memory of this machine in bytes, 0 if it is unknown.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

package server

import (
	"github.com/berth-run/berth/container"

	"github.com/berth-run/berth/server/config"
)

// poolMemory returns the memory that pools may grow into. That of a cluster's nodes is unknown here.
func poolMemory(c *config.Config) func() (available, total int64) {
	if c.Driver == "kubernetes" {
		return nil
	}
	return spareMemory
}

// poolOptions returns the configured pools.
func poolOptions(c *config.Config) (all []container.PoolOptions) {
	for _, p := range c.AllPools() {
		all = append(all, container.PoolOptions{Template: p.Template, MemoryLimit: p.MemoryLimit, Size: p.Size,
			Most: p.MaxSize})
	}
	return all
}

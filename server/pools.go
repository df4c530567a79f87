package server

import (
	"github.com/berth-run/berth/container"

	"github.com/berth-run/berth/server/config"
)

// poolOptions returns the configured pools.
func poolOptions(c *config.Config) (all []container.PoolOptions) {
	for _, p := range c.AllPools() {
		all = append(all, container.PoolOptions{Template: p.Template, MemoryLimit: p.MemoryLimit, Size: p.Size})
	}
	return all
}

package server

import "github.com/berth-run/berth/container"

// poolOptions returns the configured pools.
func poolOptions(c *Config) (all []container.PoolOptions) {
	for _, p := range c.allPools() {
		all = append(all, container.PoolOptions{Template: p.Template, MemoryLimit: p.MemoryLimit, Size: p.Size})
	}
	return all
}

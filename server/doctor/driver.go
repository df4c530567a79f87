package doctor

import (
	"context"

	"github.com/berth-run/berth/server/config"
)

// checkDriver checks what a driver needs besides this machine's kernel. If the last check fails, no container
// can start.
func checkDriver(ctx context.Context, state string, c *config.Config) []Finding {
	switch c.Driver {
	case "docker":
		return []Finding{dockerEngine(ctx, state, c)}
	case "kubernetes":
		return []Finding{kubernetesCluster(ctx, state, c)}
	case "microvm":
		return machines(state, c)
	}
	return nil
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/berth-run/berth/sandbox/docker"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
)

// dockerEngine checks the Docker Engine that the driver docker uses.
func dockerEngine(ctx context.Context, state string, config *config.Config) Finding {
	f := Finding{What: "engine"}
	dir, err := scratch(state)
	if err == nil {
		defer os.RemoveAll(dir)
		var e docker.Engine
		if e, err = queryEngine(ctx, dir, config); err == nil {
			f.OK = true
			f.Detail = fmt.Sprintf("%s at %s (%s), runtime %s, storage %s", e.Version, e.Host, e.System, e.Runtime,
				e.Storage)
			f.Advice = strings.Join(e.Lacks, "; ")
			return f
		}
	}
	f.Detail = err.Error()
	f.Advice = "start the engine, or select another with docker.host in the configuration, DOCKER_HOST, or a docker context"
	if errors.Is(err, docker.ErrUnfiltered) {
		f.Advice = "enable seccomp in the engine, or configure runsc as its runtime (docker.runtime)"
	}
	return f
}

func queryEngine(ctx context.Context, dir string, config *config.Config) (docker.Engine, error) {
	d, err := driver.Open(dir, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return docker.Engine{}, err
	}
	isolation := d.(*docker.Driver)
	return isolation.Engine(), isolation.Clear(ctx)
}

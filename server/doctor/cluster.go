package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox/kubernetes"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
)

// kubernetesCluster checks the cluster that the driver kubernetes uses.
func kubernetesCluster(ctx context.Context, state string, config *config.Config) Finding {
	f := Finding{What: "cluster"}
	dir, err := scratch(state)
	if err == nil {
		defer os.RemoveAll(dir)
		var c kubernetes.Cluster
		if c, err = queryCluster(ctx, dir, config); err == nil {
			f.OK = true
			f.Detail = fmt.Sprintf("Kubernetes %s at %s, namespace %s, runtime %s; network policies are enforced; %s",
				c.Version, c.Host, c.Namespace, c.Runtime, c.Pods)
			f.Advice = strings.Join(c.Lacks, "; ")
			return f
		}
	}
	f.Detail = err.Error()
	f.Advice = "see " + berth.DocsURL + "kubernetes.md for what the cluster and the registry must permit"
	if errors.Is(err, kubernetes.ErrTraffic) {
		f.Advice = "install a network plugin that enforces network policies: else every container could reach the cluster's network"
	}
	return f
}

func queryCluster(ctx context.Context, dir string, config *config.Config) (kubernetes.Cluster, error) {
	d, err := driver.Open(dir, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return kubernetes.Cluster{}, err
	}
	isolation := d.(*kubernetes.Driver)
	return isolation.Cluster(), isolation.Clear(ctx)
}

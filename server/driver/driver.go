// Package driver opens the driver that a configuration names, on a state directory.
package driver

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/docker"
	"github.com/berth-run/berth/sandbox/gvisor"
	"github.com/berth-run/berth/sandbox/kubernetes"
	"github.com/berth-run/berth/sandbox/local"
	"github.com/berth-run/berth/sandbox/microvm"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/embedded"
)

// A openFunc opens a driver on a state directory.
type openFunc func(state string, programs embedded.Programs, config *config.Config, log *slog.Logger) (sandbox.Driver,
	error)

// drivers maps driver names in the configuration to drivers. To add a driver, add its line.
var drivers = map[string]openFunc{
	"gvisor": func(state string, programs embedded.Programs, _ *config.Config, log *slog.Logger) (sandbox.Driver,
		error) {
		return gvisor.Open(gvisor.Options{StateDir: filepath.Join(state, "gvisor"), RunscPath: programs.Runsc,
			GuestPath: programs.Guest, Logger: log})
	},
	"docker": func(state string, programs embedded.Programs, config *config.Config, log *slog.Logger) (sandbox.Driver,
		error) {
		return docker.Open(docker.Options{StateDir: filepath.Join(state, "docker"), GuestPath: programs.Guest,
			Host: config.Docker.Host, Runtime: config.Docker.Runtime, Logger: log})
	},
	"kubernetes": func(state string, programs embedded.Programs, config *config.Config,
		log *slog.Logger) (sandbox.Driver,
		error) {
		opts := kubernetesOptions(config.Kubernetes, filepath.Join(state, "kubernetes"), programs.Guest, log)
		var err error
		if opts.Server, opts.Instance, err = sharedInstance(config, state); err != nil {
			return nil, err
		}
		return kubernetes.Open(opts)
	},
	"microvm": func(state string, programs embedded.Programs, config *config.Config, log *slog.Logger) (sandbox.Driver,
		error) {
		return microvm.Open(microvm.Options{StateDir: filepath.Join(state, "microvm"), GuestPath: programs.Guest,
			QEMUPath:  config.MicroVM.QEMU,
			KernelDir: KernelDir(state, config), Accel: config.MicroVM.Accel, Logger: log})
	},
	local.Name: func(state string, programs embedded.Programs, config *config.Config, log *slog.Logger) (sandbox.Driver,
		error) {
		return local.Open(local.Options{Name: config.Driver, StateDir: filepath.Join(state, "local"),
			GuestPath: programs.Guest, Logger: log})
	},
}

// Movable are the drivers whose sandboxes every server of a cluster reaches: sandbox.Claimer.
var Movable = map[string]bool{"kubernetes": true}

// Open opens the configured driver on a state directory.
func Open(state string, config *config.Config, log *slog.Logger) (sandbox.Driver, error) {
	open, ok := drivers[config.Driver]
	if !ok {
		return nil, fmt.Errorf("unknown driver %q: use one of %s", config.Driver,
			strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
	}
	programs, err := embedded.Extract(filepath.Join(state, "bin"))
	if err != nil {
		return nil, fmt.Errorf("extract programs: %w", err)
	}
	return open(state, programs, config, log)
}

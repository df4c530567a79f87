package server

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/docker"
	"github.com/berth-run/berth/sandbox/gvisor"
	"github.com/berth-run/berth/sandbox/local"
	"github.com/berth-run/berth/sandbox/microvm"
	"github.com/berth-run/berth/server/embedded"
)

// OpenDriver is the table of drivers.
func OpenDriver(state string, config *Config, log *slog.Logger) (sandbox.Driver, error) {
	programs, err := embedded.Extract(filepath.Join(state, "bin"))
	if err != nil {
		return nil, err
	}
	switch config.Driver {
	case "gvisor":
		return gvisor.Open(gvisor.Options{StateDir: filepath.Join(state, "gvisor"), RunscPath: programs.Runsc, GuestPath: programs.Guest, Logger: log})
	case "docker":
		return docker.Open(docker.Options{StateDir: filepath.Join(state, "docker"), GuestPath: programs.Guest, Host: config.Docker.Host, Runtime: config.Docker.Runtime, Logger: log})
	case "microvm":
		return microvm.Open(microvm.Options{StateDir: filepath.Join(state, "microvm"), GuestPath: programs.Guest, QEMUPath: config.MicroVM.QEMU,
			KernelDir: kernelDir(state, config), Accel: config.MicroVM.Accel, Logger: log})
	case local.Name:
		return local.Open(local.Options{Name: config.Driver, StateDir: filepath.Join(state, "local"), GuestPath: programs.Guest, Logger: log})
	}
	return nil, fmt.Errorf("unknown driver %q: it is gvisor, microvm, docker or %s", config.Driver, local.Name)
}

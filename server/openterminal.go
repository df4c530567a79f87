package server

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/process"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/server/config"
)

// openTerminal returns the parts of Open Terminal's API.
func openTerminal(c config.OpenTerminal, containers *container.Service, log *slog.Logger) api.OpenTerminalOptions {
	spec := api.TerminalContainer{Template: c.Template, MemoryLimit: c.Memory,
		IdleMinutes: int(c.Idle / time.Minute)}
	switch {
	case slices.Contains(c.Hosts, "*"):
		spec.Network = &berth.NetworkPolicy{Type: "open"}
	case len(c.Hosts) > 0:
		spec.Network = &berth.NetworkPolicy{Type: "allowlist", AllowedDomains: c.Hosts}
	}
	return api.OpenTerminalOptions{Container: spec, Prompt: c.Prompt,
		Processes: process.New(process.Options{Log: log, Start: startProcess(containers.Access())})}
}

// startProcess returns the function that starts processes in containers.
func startProcess(access *container.Access) func(context.Context, berth.Caller, berth.ContainerID,
	guest.ProcessRequest) (process.Handle, error) {
	return func(ctx context.Context, c berth.Caller, id berth.ContainerID, req guest.ProcessRequest) (process.Handle,
		error) {
		p, err := access.Start(ctx, c, id, req)
		if err != nil {
			return nil, err // a nil *container.Process would not be a nil Handle
		}
		return p, nil
	}
}

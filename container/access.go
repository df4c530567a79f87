package container

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Access connects callers to containers: shells, processes and ports.
type Access struct {
	opts   *Options
	work   *workers
	leases *leases
	logs   *Logs
	files  *Files
}

// Port waits until a container runs and returns a function that connects to a TCP port on
// its sandbox's loopback. dial may be called repeatedly until release; until then the
// container does not expire. Connections do not prevent expiry and end with the sandbox.
// If no process listens on the port, dial returns a *berth.Error.
func (a *Access) Port(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	port int) (dial func(context.Context) (net.Conn, error), release func(), err error) {
	s, release, err := a.leases.hold(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	dial = func(ctx context.Context) (net.Conn, error) {
		ctx, stop := s.withGuest(ctx)
		defer stop()
		ctx, cancel := a.opts.clock.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := s.client.DialPort(ctx, port)
		switch {
		case errors.Is(err, guest.ErrPortClosed):
			return nil, &berth.Error{Code: berth.CodeUpstream, Wire: "port_not_open", Err: err,
				Message: "Nothing listens on port " + strconv.Itoa(port) + " of container with id '" + string(id) +
					"'."}
		case err != nil:
			return nil, a.leases.explain(ctx, s, err)
		}
		return conn, nil
	}
	return dial, release, nil
}

// Guest returns the connection to a container's guest, for APIs with protocols of their own:
// exec, attach, E2B. The connection is shared, and the caller must not close it. The container
// does not expire until release.
func (a *Access) Guest(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (client *guest.Client,
	release func(), err error) {
	s, release, err := a.leases.hold(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	return s.client, release, nil
}

// Door returns a proxy to a container's guest that logs the caller's processes. The container
// does not expire until release.
func (a *Access) Door(ctx context.Context, caller berth.Caller, id berth.ContainerID) (door *guest.Door, release func(),
	err error) {
	s, release, err := a.leases.hold(ctx, caller.Project, id)
	if err != nil {
		return nil, nil, err
	}
	return s.client.Door(func(ctx context.Context, req guest.ProcessRequest) guest.Listener {
		entry := berth.ContainerLog{ID: berth.LogID(berth.NewID(berth.PrefixContainerLog)), Source: berth.LogExec,
			KeyID:     caller.Key,
			RequestID: caller.RequestID, User: req.User, Command: commandLine(req)}
		return execLog{a.logs.start(ctx, s, []berth.ContainerLog{entry})[0]}
	}), release, nil
}

package container

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Access gives callers ways into containers: shells, processes and ports.
type Access struct {
	opts   *Options
	work   *workers
	leases *leases
	logs   *Logs
	files  *Files
}

// Port finds a container, waits until it runs, and returns how to connect to a TCP
// port on its sandbox's loopback, which may be done more than once. Until release is
// called the container does not expire; connections do not hold it by themselves,
// and end with its sandbox. A port where nothing listens is a *berth.Error of dial.
func (a *Access) Port(ctx context.Context, p berth.ProjectID, id berth.ContainerID, port int) (dial func(context.Context) (net.Conn, error), release func(), err error) {
	s, release, err := a.leases.hold(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	dial = func(ctx context.Context) (net.Conn, error) {
		ctx, stop := s.inReach(ctx)
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		conn, err := s.client.DialPort(ctx, port)
		switch {
		case errors.Is(err, guest.ErrPortClosed):
			return nil, &berth.Error{Code: berth.CodeUpstream, Wire: "port_not_open", Err: err,
				Message: "Nothing listens on port " + strconv.Itoa(port) + " of container with id '" + string(id) + "'."}
		case err != nil:
			return nil, a.leases.explain(ctx, s, err)
		}
		return conn, nil
	}
	return dial, release, nil
}

package container

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"

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
	index  *index
	trail  *trail

	neighbours *neighbours

	contents sync.Map // *berth.TemplateContents by the digest of a template, which never changes
}

// Port waits until a container runs and returns a function that connects to a TCP port on
// its sandbox's loopback. dial may be called repeatedly until release; until then the
// container does not expire. Connections do not prevent expiry and end with the sandbox.
// If no process listens on the port, dial returns a *berth.Error.
func (a *Access) Port(ctx context.Context, caller berth.Caller, id berth.ContainerID,
	port int) (dial func(context.Context) (net.Conn, error), release func(), err error) {
	s, release, err := a.leases.hold(ctx, caller.Project, id)
	if err != nil {
		return nil, nil, err
	}
	a.trail.recordAttached(s, caller, attachedPort)
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
// does not expire until release. The audit record has the use.
func (a *Access) Guest(ctx context.Context, caller berth.Caller, id berth.ContainerID) (client *guest.Client,
	release func(), err error) {
	s, release, err := a.leases.hold(ctx, caller.Project, id)
	if err != nil {
		return nil, nil, err
	}
	a.trail.recordAttached(s, caller, attachedFiles)
	return s.client, release, nil
}

// Connect is Guest for the tools of a response, whose use of the container is not a person's.
func (a *Access) Connect(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (client *guest.Client,
	release func(), err error) {
	s, release, err := a.leases.hold(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	return s.client, release, nil
}

// Attached records that a caller runs commands in a container by itself, through Shell.
func (a *Access) Attached(caller berth.Caller, id berth.ContainerID) {
	if s := a.index.lookup(caller.Project, id); s != nil {
		a.trail.recordAttached(s, caller, attachedCommand)
	}
}

// Door returns a proxy to a container's guest that logs the caller's processes. The container
// does not expire until release.
func (a *Access) Door(ctx context.Context, caller berth.Caller, id berth.ContainerID) (door *guest.Door, release func(),
	err error) {
	s, release, err := a.leases.hold(ctx, caller.Project, id)
	if err != nil {
		return nil, nil, err
	}
	a.trail.recordAttached(s, caller, attachedConnection)
	return s.client.Door(func(ctx context.Context, req guest.ProcessRequest) guest.Listener {
		if req.TTY != nil {
			a.trail.recordAttached(s, caller, attachedTerminal)
		}
		entry := berth.ContainerLog{ID: berth.LogID(berth.NewID(berth.PrefixContainerLog)), Source: berth.LogExec,
			KeyID:     caller.Key,
			RequestID: caller.RequestID, User: req.User, Command: commandLine(req)}
		return execLog{a.logs.start(ctx, s, []berth.ContainerLog{entry})[0]}
	}), release, nil
}

// Skills returns the skills in a running container. It does not block. The caller must not
// change them.
func (a *Access) Skills(p berth.ProjectID, id berth.ContainerID) []berth.ContainerSkill {
	if s := a.index.lookup(p, id); s != nil {
		return s.listSkills()
	}
	return nil
}

// Contents returns what the template of a running container contains, or nil if that is not
// known. The caller must not change it.
func (a *Access) Contents(p berth.ProjectID, id berth.ContainerID) *berth.TemplateContents {
	s := a.index.lookup(p, id)
	if s == nil || s.body.Berth.Template == "" {
		return nil
	}
	digest := s.body.Berth.Template
	if found, ok := a.contents.Load(digest); ok {
		return found.(*berth.TemplateContents)
	}
	t, err := a.opts.Template(digest)
	if err != nil {
		a.opts.Log.Warn("failed to read the contents of a template", "template", digest, "err", err)
		return nil
	}
	a.contents.Store(digest, t.Contents)
	return t.Contents
}

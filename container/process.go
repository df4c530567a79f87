package container

import (
	"context"
	"fmt"
	"iter"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// A Process is a process that Access.Start has started, with its entry in the container's
// log.
type Process struct {
	*guest.Process
	log     execLog
	release func() // lets the container sleep and expire
	free    func()
}

// Process is Start for callers that need no more than a command.
func (a *Access) Process(ctx context.Context, caller berth.Caller, id berth.ContainerID,
	req guest.ProcessRequest) (guest.Command, error) {
	p, err := a.Start(ctx, caller, id, req)
	if err != nil {
		return nil, err // a nil *Process would not be a nil guest.Command
	}
	return p, nil
}

// Start starts a process in a container for the caller's response, once the container
// runs. It first ends the process with the same tag, which an earlier server process may have
// left. The container does not expire until the process ends or is released. The caller must read Events.
func (a *Access) Start(ctx context.Context, caller berth.Caller, id berth.ContainerID,
	req guest.ProcessRequest) (*Process, error) {
	s, release, err := a.leases.hold(ctx, caller.Project, id)
	if err != nil {
		return nil, err
	}
	if kind := attachedCommand; caller.Response == "" {
		if req.TTY != nil {
			kind = attachedTerminal
		}
		a.trail.recordAttached(s, caller, kind)
	}
	ctx, stop := s.withGuest(ctx)
	free := func() { stop(); release() }
	if req.Tag != "" {
		if err := s.client.KillTagged(ctx, req.Tag); err != nil {
			free()
			return nil, fmt.Errorf("end an earlier process: %w", a.leases.explain(ctx, s, err))
		}
	}
	p, err := s.client.Start(ctx, req)
	if err != nil {
		free()
		return nil, a.leases.explain(ctx, s, err)
	}
	entry := berth.ContainerLog{ID: berth.LogID(berth.NewID(berth.PrefixContainerLog)), Source: berth.LogExec,
		ResponseID: caller.Response,
		KeyID:      caller.Key, RequestID: caller.RequestID, User: req.User, Command: commandLine(req)}
	return &Process{Process: p, log: execLog{a.logs.start(ctx, s, []berth.ContainerLog{entry})[0]}, release: release,
		free: free}, nil
}

// Release lets the container sleep and expire although the process runs.
func (p *Process) Release() { p.release() }

// Events yields the output of the process, as guest.Process does, and logs it.
func (p *Process) Events() iter.Seq2[guest.ProcessEvent, error] {
	return func(yield func(guest.ProcessEvent, error) bool) {
		defer p.free()
		ended := false
		defer func() {
			if !ended {
				p.log.Detach()
			}
		}()
		for ev, err := range p.Process.Events() {
			if err == nil {
				p.log.Output(false, ev.Stdout)
				p.log.Output(true, ev.Stderr)
			}
			if ended = err == nil && ev.Ended; ended {
				p.log.End(ev.ExitCode)
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

package container

import (
	"context"
	"errors"
	"iter"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// shellGrace is how much longer than its timeout a call may take until the guest,
// which has to end the commands, is no longer waited for.
const shellGrace = 30 * time.Second

// A Shell runs shell calls in one container.
type Shell struct {
	access *Access
	caller berth.Caller
	id     berth.ContainerID
}

// Shell returns the shell of a container. A container that is not there or has
// ended is reported by the calls. The caller's response, key and request are named
// in the container's log.
func (a *Access) Shell(caller berth.Caller, id berth.ContainerID) Shell {
	return Shell{access: a, caller: caller, id: id}
}

// Shell runs a call, or takes it up if the guest knows its id, and yields what its
// commands do until all have ended. Until then the container does not expire. An
// error is the last thing that it yields; the commands go on unless the
// container has ended.
func (sh Shell) Shell(ctx context.Context, call guest.ShellCall) iter.Seq2[guest.ShellEvent, error] {
	return func(yield func(guest.ShellEvent, error) bool) {
		s, release, err := sh.access.leases.hold(ctx, sh.caller.Project, sh.id)
		if err != nil {
			yield(guest.ShellEvent{}, err)
			return
		}
		defer release()
		var told guest.ShellEvent
		defer func() { sh.access.files.collect(s, told) }()
		ctx, stop := s.inReach(ctx)
		defer stop()
		if call.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, call.Timeout+shellGrace, errors.New("the guest did not end the commands"))
			defer cancel()
		}
		log := sh.log(ctx, s, call)
		defer sh.close(s, call, log)
		for ev, err := range s.client.Shell(ctx, call) {
			if err != nil {
				err = sh.access.leases.explain(ctx, s, err)
			}
			log.hear(ev)
			if ev.Kind == guest.ShellChanges {
				told = ev
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Cancel ends the commands of a call with all that they started. A call that is
// not known has nothing to end.
func (sh Shell) Cancel(ctx context.Context, callID string) error {
	return sh.ask(ctx, func(ctx context.Context, c *guest.Client) error { return c.CancelShell(ctx, callID) })
}

// Forget lets the container drop what it kept of a call that has been told. That
// is only thrift: the guest drops the oldest calls by itself.
func (sh Shell) Forget(ctx context.Context, callID string) {
	err := sh.ask(ctx, func(ctx context.Context, c *guest.Client) error { return c.ForgetShell(ctx, callID) })
	if err != nil {
		sh.access.opts.Log.Debug("a call was not forgotten", "container", sh.id, "call", callID, "err", err)
	}
}

func (sh Shell) ask(ctx context.Context, question func(context.Context, *guest.Client) error) error {
	s, release, err := sh.access.leases.hold(ctx, sh.caller.Project, sh.id)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := s.inReach(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := question(ctx, s.client); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return sh.access.leases.explain(ctx, s, err)
	}
	return nil
}

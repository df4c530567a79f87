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

// shellGrace is the time that the guest has after a call's timeout to end the commands.
const shellGrace = 30 * time.Second

// A shell runs shell calls in one container.
type shell struct {
	access *Access
	caller berth.Caller
	id     berth.ContainerID
}

// Shell returns the shell of a container. Its calls return an error if the container does not
// exist or has ended. The container's log records the caller's response, key and request.
func (a *Access) Shell(caller berth.Caller, id berth.ContainerID) guest.Execer {
	return shell{access: a, caller: caller, id: id}
}

// Shell runs a call, or resumes it if the guest has its id, and yields the events of its
// commands until all have ended. The container does not expire while they run. An error is the last
// element; the commands continue unless the container has ended.
func (sh shell) Shell(ctx context.Context, call guest.ShellCall) iter.Seq2[guest.ShellEvent, error] {
	return func(yield func(guest.ShellEvent, error) bool) {
		s, release, err := sh.access.leases.hold(ctx, sh.caller.Project, sh.id)
		if err != nil {
			yield(guest.ShellEvent{}, err)
			return
		}
		defer release()
		var changes guest.ShellEvent
		defer func() { sh.access.files.collect(s, changes) }()
		ctx, stop := s.withGuest(ctx)
		defer stop()
		if call.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = sh.access.opts.clock.WithTimeoutCause(ctx, call.Timeout+shellGrace,
				errors.New("guest did not end the commands"))
			defer cancel()
		}
		log := sh.startLog(ctx, s, call)
		defer sh.detach(s, call, log)
		defer log.wait()
		logged := loggedEvents(call)
		for ev, err := range s.client.Shell(ctx, call) {
			if err != nil {
				err = sh.access.leases.explain(ctx, s, err)
			}
			log.record(logged(ev))
			if ev.Kind == guest.ShellChanges {
				changes = ev
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// prepareTimeout bounds the start of a kernel or a desktop ahead of its first call.
const prepareTimeout = 2 * time.Minute

// Prepare starts the kernel or the desktop that a call needs, in the background, unless it runs already. The call waits
// for it, and reports a failure.
func (sh shell) Prepare(call guest.ShellCall) {
	if sh.id == "" {
		return
	}
	sh.access.work.spawn(func() {
		ctx, cancel := sh.access.opts.clock.WithTimeout(context.Background(), prepareTimeout)
		defer cancel()
		s, release, err := sh.access.leases.hold(ctx, sh.caller.Project, sh.id)
		if err != nil {
			return
		}
		defer release()
		ctx, stop := s.withGuest(ctx)
		defer stop()
		call.CallID, call.Commands = berth.NewID("start_"), []string{""} // an empty command has no other effect
		for range s.client.Shell(ctx, call) {
		}
		_ = s.client.ForgetShell(ctx, call.CallID)
	})
}

// Cancel ends the commands of a call and all processes that they started. It returns nil
// for an unknown call.
func (sh shell) Cancel(ctx context.Context, callID string) error {
	return sh.call(ctx, func(ctx context.Context, c *guest.Client) error { return c.CancelShell(ctx, callID) })
}

// Forget lets the guest drop the recorded output of a call. It is an optimization: the guest
// drops the output of the oldest calls by itself.
func (sh shell) Forget(ctx context.Context, callID string) {
	err := sh.call(ctx, func(ctx context.Context, c *guest.Client) error { return c.ForgetShell(ctx, callID) })
	if err != nil {
		sh.access.opts.Log.Debug("failed to forget a call", "container", sh.id, "call", callID, "err", err)
	}
}

func (sh shell) call(ctx context.Context, question func(context.Context, *guest.Client) error) error {
	s, release, err := sh.access.leases.hold(ctx, sh.caller.Project, sh.id)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := s.withGuest(ctx)
	defer stop()
	ctx, cancel := sh.access.opts.clock.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := question(ctx, s.client); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return sh.access.leases.explain(ctx, s, err)
	}
	return nil
}

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/store"
)

// hold finds a container, waits until it runs, resumes it if it is paused, and keeps it from expiring until
// release is called.
func (k *Keeper) hold(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (s *sandbox, release func(), err error) {
	if s, err = k.find(ctx, p, id); err != nil {
		return nil, nil, err
	}
	if err := s.acquire(ctx); err != nil {
		return nil, nil, err
	}
	release = sync.OnceFunc(func() { s.release(k.now()) })
	if err = s.await(ctx); err == nil {
		err = k.resume(ctx, s)
	}
	if err == nil {
		err = s.silence()
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return s, release, nil
}

// use is hold with a context that also ends with the sandbox.
func (k *Keeper) use(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*sandbox, context.Context, func(), error) {
	s, release, err := k.hold(ctx, p, id)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := s.inReach(ctx)
	return s, ctx, func() {
		stop()
		release()
	}, nil
}

// find returns the sandbox of a container that is not known to have ended.
func (k *Keeper) find(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*sandbox, error) {
	if s := k.lookup(p, id); s != nil {
		return s, nil
	}
	rec, err := k.opts.Store.GetContainer(ctx, p, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound(id)
	case err != nil:
		return nil, err
	case rec.Body.Status != berth.ContainerRunning:
		return nil, goneError(rec.Body, rec.Body.Berth.Reason)
	}
	return nil, berth.Errorf(berth.CodeUnavailable, "Container with id '%s' is not in the hands of this server.", id)
}

// Guest returns the connection to a container's guest, for front doors of their
// own: exec, attach, E2B. It is shared; the caller calls release and does not
// close it. Until then the container does not expire.
func (k *Keeper) Guest(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (client *guest.Client, release func(), err error) {
	s, release, err := k.hold(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	return s.client, release, nil
}

// dir returns what the guest calls berth.WorkDir. Without isolation it is another
// directory, because there the guest's root is the host's.
func (s *sandbox) dir(ctx context.Context) (string, error) {
	s.mu.Lock()
	dir := s.workDir
	s.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	info, err := s.client.Info(ctx)
	if err != nil {
		return "", err
	}
	dir = info.WorkDir
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || len(dir) > 1024 || !utf8.ValidString(dir) {
		return "", fmt.Errorf("the guest says that it works in %.100q", dir)
	}
	s.mu.Lock()
	s.workDir = dir
	s.mu.Unlock()
	return dir, nil
}

// patience is how long before each question an ended connection is given to show
// why: the driver sees the death of a sandbox a moment later.
var patience = [...]time.Duration{0, 50 * time.Millisecond, 250 * time.Millisecond}

// pingTime bounds the answer of a guest that is asked whether it is there.
const pingTime = time.Second

// explain turns an error on the way to a guest into what the client is told: the
// container's end if it has ended, why ctx ended if it has, else that the
// container does not answer.
func (k *Keeper) explain(ctx context.Context, s *sandbox, err error) error {
	if _, ok := errors.AsType[*berth.Error](err); ok {
		return err
	}
	timedOut := false
	for _, wait := range patience {
		select {
		case <-time.After(wait):
		case <-s.life.Done():
		case <-ctx.Done():
		}
		k.check(s)
		if s.life.Err() != nil {
			return context.Cause(s.life)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		silent := s.silence()
		if silent != nil {
			return silent
		}
		var answered bool
		if answered, timedOut = s.ping(ctx, k.slack(pingTime)); answered {
			break
		}
	}
	if timedOut && ctx.Err() == nil {
		k.unanswered(s, 0) // of the whole patience nothing has come of it
	}
	return noAnswer(s.id, err)
}

// answers reports whether the guest is there.
func (s *sandbox) answers(ctx context.Context) bool {
	answered, _ := s.ping(ctx, pingTime)
	return answered
}

// ping reports whether the guest has answered, and if not, whether all of the time passed
// over it: it may be that it could not be asked.
func (s *sandbox) ping(ctx context.Context, most time.Duration) (answered, timedOut bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.client.Ping(ctx) }() // its write lasts longer if the guest does not read
	select {
	case err := <-done:
		return err == nil, err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	case <-ctx.Done():
		return false, errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
}

func trimDot(s string) string { return strings.TrimSuffix(s, ".") }

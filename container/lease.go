package container

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
	"github.com/berth-run/berth/store"
)

// leases finds the instances of containers and holds them for their users.
type leases struct {
	opts   *Options
	work   *workers
	index  *index
	deaths *deaths
	meter  *meter
}

// hold returns the running instance of a container. It waits for the start, resumes a
// paused container, and prevents expiry until release is called.
func (ls *leases) hold(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (s *instance, release func(),
	err error) {
	if s, err = ls.find(ctx, p, id); err != nil {
		return nil, nil, err
	}
	if err := s.acquire(ctx); err != nil {
		return nil, nil, err
	}
	release = sync.OnceFunc(func() { s.release(ls.opts.clock.Now()) })
	if err = ls.create(ctx, s); err != nil {
		release()
		ls.drop(s)
		return nil, nil, err
	}
	if err = s.waitStarted(ctx); err == nil {
		err = ls.resume(ctx, s)
	}
	if err == nil {
		err = s.silentError()
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return s, release, nil
}

// use is hold with a context that also ends when the sandbox does.
func (ls *leases) use(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*instance, context.Context, func(),
	error) {
	s, release, err := ls.hold(ctx, p, id)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := s.withGuest(ctx)
	return s, ctx, func() {
		stop()
		release()
	}, nil
}

// find returns the instance of a container that has not ended as far as this server has
// recorded.
func (ls *leases) find(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*instance, error) {
	if s := ls.index.lookup(p, id); s != nil {
		return s, nil
	}
	rec, err := ls.opts.container(ctx, p, id)
	switch {
	case err != nil:
		return nil, err
	case rec.Body.Status != berth.ContainerRunning:
		return nil, goneError(rec.Body, rec.Body.Berth.Reason)
	}
	if ls.opts.elsewhere(rec) {
		return nil, store.Elsewhere(fmt.Sprintf("Container with id '%s'", id), rec.Body.Berth.Server)
	}
	return nil, berth.Errorf(berth.CodeUnavailable, "Container with id '%s' is not managed by this server.", id)
}

// workingDir returns the guest's path of berth.WorkDir. Without isolation it is a
// different directory, because the guest's root is the host's.
func (s *instance) workingDir(ctx context.Context) (string, error) {
	s.mu.Lock()
	dir := s.files.workDir
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
		return "", fmt.Errorf("guest reported an invalid working directory %.100q", dir)
	}
	s.mu.Lock()
	s.files.workDir = dir
	s.mu.Unlock()
	return dir, nil
}

// explainWaits are the delays before each check of why a connection ended: the driver notices
// the death of a sandbox with a delay.
var explainWaits = [...]time.Duration{0, 50 * time.Millisecond, 250 * time.Millisecond}

// pingTimeout bounds the guest's answer to a ping.
const pingTimeout = time.Second

// explain turns an error of a call to a guest into an error for the client. That is the
// container's end if it has ended, the cause of ctx if ctx has ended, and otherwise that the
// container does not answer.
func (ls *leases) explain(ctx context.Context, s *instance, err error) error {
	if _, ok := errors.AsType[*berth.Error](err); ok {
		return err
	}
	timedOut := false
	for _, wait := range explainWaits {
		select {
		case <-ls.opts.clock.After(wait):
		case <-s.life.Done():
		case <-ctx.Done():
		}
		ls.deaths.check(s)
		if s.life.Err() != nil {
			return context.Cause(s.life)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		silent := s.silentError()
		if silent != nil {
			return silent
		}
		var answered bool
		if answered, timedOut = s.ping(ctx, ls.opts.slack(pingTimeout)); answered {
			break
		}
	}
	if timedOut && ctx.Err() == nil {
		ls.markSilent(s, 0) // it did not answer during all of the delays
	}
	return noAnswer(s.id, err)
}

// answers reports whether the guest answers a ping.
func (s *instance) answers(ctx context.Context) bool {
	answered, _ := s.ping(ctx, pingTimeout)
	return answered
}

// ping reports whether the guest answered. timedOut is true if the full time passed
// without an answer; both are false if the ping could not be sent.
func (s *instance) ping(ctx context.Context, most time.Duration) (answered, timedOut bool) {
	ctx, cancel := s.clock.WithTimeout(ctx, most)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.client.Ping(ctx) }() // its write takes longer if the guest does not read
	select {
	case err := <-done:
		return err == nil, err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	case <-ctx.Done():
		return false, errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
}

func trimPeriod(s string) string { return strings.TrimSuffix(s, ".") }

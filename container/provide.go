package container

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// autoName is the name of containers that a shell tool asked for.
const autoName = "container_auto"

// Provide returns the container for a shell tool's environment, with its files
// put in: the one that it refers to, or for container_auto the last one of the
// response's chain if that still runs, else a new one. If the last one expired and
// left a snapshot, the new one starts from it and is of its kind; if it was to leave
// one and there is none, that is an error unless the environment says otherwise.
func (k *Service) Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment, last berth.ContainerID) (berth.ContainerID, error) {
	p := caller.Project
	if env.Type == berth.EnvironmentReference {
		if err := k.leases.reserve(ctx, p, env.ContainerID); err != nil {
			return "", err
		}
		return env.ContainerID, nil
	}
	req := CreateRequest{Name: autoName, MemoryLimit: env.MemoryLimit, NetworkPolicy: env.NetworkPolicy, FileIDs: env.FileIDs}
	if env.Berth != nil {
		req.Source = *env.Berth
	}
	if last != "" {
		if _, err := k.planner.plan(ctx, p, req); err != nil {
			return "", err
		}
		err := k.leases.reserve(ctx, p, last)
		s := k.index.lookup(p, last)
		if err == nil && (s == nil || !s.samePolicy(env.NetworkPolicy)) {
			last = "" // it reaches more, or less, than is asked for
		}
		if err == nil && last != "" {
			err = k.files.Add(ctx, p, last, env.FileIDs)
		}
		if err == nil && last != "" {
			return last, nil
		}
		if s := k.index.lookup(p, last); s != nil && s.life.Err() == nil {
			return "", err
		}
		if last != "" {
			if req, err = k.continued(ctx, p, req, last); err != nil {
				return "", err
			}
		}
	}
	c, err := k.Create(ctx, caller, req)
	if err != nil {
		return "", err
	}
	return c.ID, nil
}

// continued returns the request for a container that takes the place of one that
// has ended: if that left a snapshot which is still there, it starts from it and,
// where the request says nothing, is as that was.
func (k *Service) continued(ctx context.Context, p berth.ProjectID, req CreateRequest, last berth.ContainerID) (CreateRequest, error) {
	rec, err := k.opts.Store.GetContainer(ctx, p, last)
	if errors.Is(err, store.ErrNotFound) {
		return req, nil
	}
	if err != nil {
		return req, err
	}
	was := rec.Body
	if was.Status == berth.ContainerRunning { // its end is not saved yet
		return req, k.leases.reserve(ctx, p, last)
	}
	if was.Berth.LastSnapshot != "" {
		_, err = k.snapshots.get(ctx, p, was.Berth.LastSnapshot)
	}
	switch gone := berth.ErrorCode(err) == berth.CodeNotFound; {
	case err != nil && !gone:
		return req, err
	case !gone && was.Berth.LastSnapshot != "":
	case was.Berth.OnExpiry == berth.OnExpirySnapshot && req.Source.OnLost != berth.OnLostNew:
		return req, lostError(was)
	default:
		return req, nil
	}
	req.Source = berth.ContainerSource{SnapshotID: was.Berth.LastSnapshot, OnExpiry: cmp.Or(req.Source.OnExpiry, was.Berth.OnExpiry)}
	req.MemoryLimit = cmp.Or(req.MemoryLimit, was.MemoryLimit)
	if req.ExpiresAfter == nil {
		req.ExpiresAfter = &was.ExpiresAfter
	}
	if req.NetworkPolicy == nil {
		req.NetworkPolicy = &was.NetworkPolicy // its secrets ended with it
	}
	return req, nil
}

// lostError is what a chain gets whose container has ended, if what was in it was to be
// kept and is not there.
func lostError(was *berth.Container) error {
	e := goneError(was, was.Berth.Reason)
	e.Message = strings.TrimSuffix(e.Message, ".")
	if was.Berth.LastSnapshot != "" {
		e.Message += ", which is gone too"
	}
	e.Message += ". With 'berth.on_lost' as 'new' in its environment the request gets a new container."
	return e
}

// reserve counts as a use of a container, which must not have ended.
func (ls *leases) reserve(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	s, err := ls.find(ctx, p, id)
	if err != nil {
		return err
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	s.release(ls.opts.now())
	return nil
}
